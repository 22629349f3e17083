"""The mapping of groups to roles: what is written, and what several groups give together."""

from __future__ import annotations

import pytest

from tenants.groups import Granted, granted_by, parse_groups
from tenants.roles import PlatformRole, Role

MAPPING = parse_groups(
    "ops=operator, desk=support, cn=devs=acme:developer, leads=acme:admin, leads=globex:viewer"
)


def test_a_group_may_hold_an_equals_sign() -> None:
    assert ("cn=devs", "acme", "developer") in MAPPING


def test_groups_give_the_strongest_of_each() -> None:
    found = granted_by(["desk", "ops", "cn=devs", "leads", "unknown"], MAPPING)
    assert found == Granted(PlatformRole.OPERATOR, {"acme": Role.ADMIN, "globex": Role.VIEWER})


def test_groups_that_are_not_named_give_nothing() -> None:
    assert not granted_by(["unknown"], MAPPING)


@pytest.mark.parametrize("text", ["ops", "=operator", "ops=king", "devs=acme:operator", "devs=acme:", "ops="])
def test_what_cannot_be_understood_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not GROUP=ROLE"):
        parse_groups(text)
