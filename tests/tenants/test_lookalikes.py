"""No new user name passes for another one."""

from __future__ import annotations

import pytest

from tenants.actions.users import create_user
from tenants.errors import Invalid
from tests.tenants.conftest import SYSTEM, Cast


@pytest.mark.parametrize(
    "name",
    [
        "оwner",  # a Cyrillic о before Latin letters
        "ａdmin",  # full width
        "ﬁona",  # a ligature
        "οmega",  # a Greek ο
    ],
)
def test_a_name_of_several_alphabets_or_odd_forms_is_refused(db: None, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        create_user(by=SYSTEM, username=name)
    assert list(refused.value.errors) == ["username"]


def test_a_name_all_of_whose_letters_have_doubles_is_refused_when_it_spells_anothers(team: Cast) -> None:
    create_user(by=SYSTEM, username="Oscar")
    with pytest.raises(Invalid, match="looks like another"):
        create_user(by=SYSTEM, username="оѕсаг")
    assert create_user(by=SYSTEM, username="сосо").pk


@pytest.mark.parametrize(
    "name", ["李雷", "李雷li", "ジョン-jon", "öykü", "михаил", "νίκος", "josé.o'neil"[:6]]
)
def test_names_as_people_have_them_are_fine(db: None, name: str) -> None:
    assert create_user(by=SYSTEM, username=name).pk
