"""What a command says when it fails, and its exit status: whatever the failure looks like."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest

from tests.console.api.asking import token_of
from tests.console.conftest import World
from tests.tidegate.terminal import Terminal
from tidegate import Tidegate, Unreachable
from tidegate.cli import asking, output
from tidegate.cli import main as cli
from tidegate.errors import Damaged, TidegateError

PROBLEM = {"detail": "No.", "code": "not_allowed", "request_id": "req_1"}
SHAPES: list[tuple[int, dict[str, Any], int, str]] = [
    (403, {"json": PROBLEM}, 1, "tidegate: No.\nrequest req_1\n"),
    (403, {"json": {**PROBLEM, "code": "sign_in_again"}}, 3, "tidegate login` again"),
    (401, {"json": {**PROBLEM, "code": "not_signed_in"}}, 3, "--key"),
    (422, {"json": {"errors": [{"pointer": "/name", "detail": "Too long."}]}}, 1, "/name: Too long."),
    (422, {"json": {"errors": [{"detail": "Odd."}, "odd"], "detail": "x"}}, 1, "/: Odd."),
    (422, {"json": {"errors": {"name": "Odd."}, "detail": "In another shape."}}, 1, "In another shape."),
    (404, {"json": ["odd"]}, 1, "The console answered 404."),
    (502, {"html": "<h1>Bad gateway</h1>"}, 1, "The console answered 502."),
    (500, {"text": ""}, 1, "The console answered 500."),
    (200, {"html": "<h1>Sign in to the guest network</h1>"}, 1, "The console answered 200."),
    (200, {"text": "[" * 100_000}, 1, "The console answered 200."),
    (403, {"json": {**PROBLEM, "detail": "\x1b]0;owned\x07No."}}, 1, "tidegate: \\u001b]0;owned\\u0007No."),
]


def ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    """Exit status and stderr of a command."""
    monkeypatch.setattr("sys.argv", ["tidegate", *words])
    with pytest.raises(SystemExit) as found:
        cli.main()
    return int(found.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(("status", "body", "code", "said"), SHAPES)
def test_every_shape_of_a_refusal_is_readable(
    status: int,
    body: dict[str, Any],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    http = httpx.MockTransport(lambda _: httpx.Response(status, **body))
    monkeypatch.setattr(asking, "Tidegate", lambda *given: Tidegate(*given, http=http))
    found, told = ended(monkeypatch, capsys, "--key", "tg_x", "me")
    assert found == code
    assert said in told and "Traceback" not in told and "\x1b" not in told


def test_an_answer_without_an_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    http = httpx.MockTransport(lambda _: httpx.Response(200, content=itertools.repeat(b" " * (1 << 20))))
    monkeypatch.setattr(asking, "Tidegate", lambda *given: Tidegate(*given, http=http))
    found, told = ended(monkeypatch, capsys, "--key", "tg_x", "me")
    assert (found, "without an end" in told) == (4, True)


@pytest.mark.parametrize("page", [[], {}, {"data": 1}, {"data": [], "has_more": True, "next_cursor": "x"}])
def test_a_list_that_is_none_or_goes_round_in_circles_ends(page: Any) -> None:
    http = httpx.MockTransport(lambda _: httpx.Response(200, json=page))
    with pytest.raises(TidegateError):
        list(Tidegate(key="tg_x", http=http).keys.list())


@pytest.mark.parametrize(
    "odd", ["\x1b[2J", "\x9b2J", "\x7f", "\u202etxt.exe", "a\nb", "\ud800", "\U000e0041"]
)
def test_what_others_named_does_not_steer_the_terminal(odd: str) -> None:
    shown = output.cell(odd)
    assert shown.isprintable() and "\\u" in shown or shown == "a\\nb"
    assert json.loads(output._line({"name": odd})) == {"name": odd}
    assert output._line({"name": odd}).isprintable()


def test_letters_of_every_script_are_shown_as_they_are() -> None:
    names = "Zoë, 模型, می‌خواهم"
    assert output.cell(names) == names


def test_each_kind_of_failure_has_its_status() -> None:
    assert (cli.status_of(Unreachable("")), cli.status_of(Damaged(""))) == (4, 5)


def test_a_command_that_cannot_be_read_ends_with_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, capsys, "--output", "xml", "me")[0] == 2


def test_refusals_are_told_in_the_consoles_words(
    world: World, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_API_KEY", token_of(world, "manage:read"))
    code, said = ended(monkeypatch, capsys, "tenants", "create", "initech", "Initech")
    assert code == 1
    assert "manage tenants" in said


def test_a_session_that_is_too_old_for_this_says_what_to_do(
    operator: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], settings: Any
) -> None:
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
    account = operator.json("people", "list", "--q", "viewer")[0]["id"]
    code, said = ended(monkeypatch, capsys, "people", "switch-off", account)
    assert (code, "tidegate login` again" in said) == (3, True)


def test_output_is_a_table_or_json(operator: Terminal) -> None:
    assert operator.run("--output", "json", "tenants", "list").startswith('{"id": "tnt_')
    assert operator.run("-o", "table", "tenants", "list").startswith("id ")


def test_a_shell_can_complete_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TIDEGATE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "tidegate org")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setattr("sys.argv", ["tidegate"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.split() == ["organisations"]
