"""A request may lower its class, in either protocol, and never raise it."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import InvalidRequest
from serving.gateway.priority import CLASSES, lower, of_header, of_number


@pytest.mark.parametrize(
    ("number", "wish"),
    [(None, None), (0, None), (1, "interactive"), (2, "standard"), (3, "batch"), (2**63, "batch")],
)
def test_larger_numbers_are_lower_classes(number: Any, wish: str | None) -> None:
    assert of_number(number) == wish


@pytest.mark.parametrize("number", [-1, True, False, 1.5, "1"])
def test_a_priority_that_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        of_number(number)


def test_the_header_names_a_class() -> None:
    assert [of_header(name.upper().encode()) for name in CLASSES] == list(CLASSES)
    with pytest.raises(InvalidRequest, match="interactive, standard, batch"):
        of_header(b"urgent")


def test_of_two_classes_the_lower_one_counts() -> None:
    for own, name in enumerate(CLASSES):
        for wish, wished in enumerate(CLASSES):
            assert lower(name, wished) == CLASSES[max(own, wish)]
