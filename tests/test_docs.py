"""The reference pages know every setting, error code, command and header there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving.errors import BY_CODE
from serving.gateway.protocols.openai import CODES

PROJECT = Path(__file__).resolve().parent.parent
OPERATIONS = (PROJECT / "docs" / "operations.md").read_text()
API = (PROJECT / "docs" / "api.md").read_text()


def _sources() -> str:
    folders = ("console", "serving", "tenants")
    return "\n".join(path.read_text() for folder in folders for path in (PROJECT / folder).rglob("*.py"))


def test_every_setting_is_documented() -> None:
    # TIDEGATE_CPU is the stem of a family, TIDEGATE_KEY a name in the curl lines shown to people.
    named = set(re.findall(r"\bTIDEGATE_[A-Z][A-Z_]*[A-Z]\b", _sources())) - {"TIDEGATE_CPU", "TIDEGATE_KEY"}
    assert sorted(name for name in named if f"`{name}`" not in OPERATIONS) == []


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_code_is_documented_with_its_status(code: str) -> None:
    assert re.search(rf"\| {BY_CODE[code].status} \|[^\n]*`{code}`", API)


def test_codes_that_read_otherwise_under_v1_are_documented() -> None:
    for code, theirs in CODES.items():
        assert re.search(rf"\| {BY_CODE[code].status} \|[^\n]*`{code}`[^\n]*`{theirs}`", API)


def test_every_command_is_documented() -> None:
    commands = (PROJECT / "console" / "management" / "commands").glob("[a-z]*.py")
    commands = [*commands, *(PROJECT / "tenants" / "management" / "commands").glob("[a-z]*.py")]
    assert [path.stem for path in commands if f"manage.py {path.stem}" not in OPERATIONS] == []


def test_every_system_check_is_documented() -> None:
    last = max(re.findall(r"tidegate\.E(\d+)", _sources()))
    assert f"tidegate.E{last}" in OPERATIONS
