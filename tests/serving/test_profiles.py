"""The most specific binding wins, and somebody always gets a profile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.contract import BindingEntry, ProfileEntry
from serving.profiles import FALLBACK, resolve

TARGETS = [
    (None, None, None),
    (None, None, "infer"),
    (None, "m", None),
    (None, "m", "infer"),
    ("t", None, None),
    ("t", "m", None),
    ("t", None, "infer"),
    ("t", "m", "infer"),
]
"""Least specific first."""


def bind(target: tuple[str | None, str | None, str | None], profile_id: str) -> BindingEntry:
    tenant_id, model, endpoint = target
    return BindingEntry(
        id=f"bnd_{profile_id}", profile_id=profile_id, tenant_id=tenant_id, model=model, endpoint=endpoint
    )


def profiles(count: int) -> dict[str, ProfileEntry]:
    return {f"p{index}": ProfileEntry(id=f"p{index}", name=f"p{index}") for index in range(count)}


@given(chosen=st.sets(st.integers(0, len(TARGETS) - 1)))
def test_the_most_specific_binding_that_fits_wins(chosen: set[int]) -> None:
    bindings = [bind(TARGETS[index], f"p{index}") for index in chosen]
    found = resolve(bindings, profiles(8), tenant_id="t", model="m", endpoint="infer")
    assert found.id == (f"p{max(chosen)}" if chosen else FALLBACK.id)


def test_bindings_of_others_do_not_apply() -> None:
    bindings = [
        bind(("other", None, None), "p1"),
        bind((None, "other", None), "p2"),
        bind((None, None, None), "p0"),
    ]
    assert resolve(bindings, profiles(3), tenant_id="t", model="m", endpoint="infer").id == "p0"


def test_a_binding_whose_profile_has_not_arrived_falls_back_to_the_wider_one() -> None:
    bindings = [bind(("t", None, None), "p9"), bind((None, None, None), "p0")]
    assert resolve(bindings, profiles(1), tenant_id="t", model="m", endpoint="infer").id == "p0"
