"""Options are checked against their table; nothing unknown or out of range slips through."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from serving.contract import EngineName
from serving.control.catalog.options import BY_ENGINE, InvalidOptions, complete


def test_every_engine_has_its_options() -> None:
    assert set(BY_ENGINE) == set(get_args(EngineName))


def test_defaults_fill_what_was_not_given() -> None:
    chosen = complete("encoder", {"dtype": "bf16"})
    assert chosen["dtype"] == "bf16" and chosen["truncate"] is False and chosen["max_batch_rows"] == 128


def test_what_the_artifact_decides_has_no_default_here() -> None:
    assert not {"task", "pooling", "normalize", "max_tokens"} & set(complete("encoder", {}))


def test_text_from_a_form_is_taken_for_what_it_means() -> None:
    chosen = complete("encoder", {"normalize": "false", "max_tokens": "256", "truncate": "on", "dtype": ""})
    assert (chosen["normalize"], chosen["max_tokens"], chosen["truncate"]) == (False, 256, True)


@pytest.mark.parametrize(
    ("engine", "given", "named"),
    [
        ("encoder", {"pooling": "max"}, "pooling"),
        ("encoder", {"poolling": "mean"}, "poolling"),
        ("encoder", {"max_tokens": 0}, "max_tokens"),
        ("encoder", {"max_tokens": "many"}, "max_tokens"),
        ("encoder", {"max_tokens": True}, "max_tokens"),
        ("encoder", {"max_tokens": 1.5}, "max_tokens"),
        ("encoder", {"normalize": "maybe"}, "normalize"),
        ("tensor", {"pooling": "mean"}, "pooling"),
        ("echo", {"dtype": "fp32"}, "dtype"),
    ],
)
def test_a_wrong_option_is_refused_by_name(engine: EngineName, given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        complete(engine, given)
    assert set(caught.value.errors) == {named}


def test_every_wrong_option_is_named_at_once() -> None:
    with pytest.raises(InvalidOptions) as caught:
        complete("encoder", {"a": 1, "dtype": "fp8"})
    assert set(caught.value.errors) == {"a", "dtype"}
