"""`tidegate`: the management API on the command line. Every command is a request or two."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidegate.cli import money, signin
from tidegate.cli.asking import Chosen, Output, console, show
from tidegate.cli.audit import audit
from tidegate.cli.deployments import deployments
from tidegate.cli.keys import keys
from tidegate.cli.models import models
from tidegate.cli.output import visible
from tidegate.cli.people import invitations, members, organisations, people, sessions
from tidegate.cli.quotas import quotas
from tidegate.cli.tenants import tenants
from tidegate.errors import Damaged, Refused, TidegateError, Unreachable

app = typer.Typer(no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)
for name, group in (
    ("tenants", tenants),
    ("keys", keys),
    ("members", members),
    ("invitations", invitations),
    ("organisations", organisations),
    ("people", people),
    ("sessions", sessions),
    ("models", models),
    ("deployments", deployments),
    ("quotas", quotas),
    ("audit", audit),
):
    app.add_typer(group, name=name)
for command in (money.usage, money.statement, money.forecast):
    app.command()(command)

REFUSED, NOT_SHOWN, NO_ANSWER, DAMAGED = 1, 3, 4, 5
"""Exit statuses; 2 is a command that cannot be read."""
HINTS = {
    "not_signed_in": "Sign in with `tidegate login`, or give a key with --key.",
    "sign_in_again": "Run `tidegate login` again, then this within five minutes.",
}

Url = Annotated[str, typer.Option("--url", envvar="TIDEGATE_CONSOLE_URL", help="Address of the console.")]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="TIDEGATE_API_KEY", help="An API key; else the session of `login`."),
]
Form = Annotated[Output, typer.Option("--output", "-o", help="Columns, or one JSON document a line.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


def main() -> None:
    """Ends with a status that says what kind of failure it was, and the console's words on stderr."""
    try:
        app(prog_name="tidegate")
    except TidegateError as error:
        typer.echo(visible(f"tidegate: {error}", but="\n"), err=True)
        if isinstance(error, Refused):
            _tell_more(error)
        sys.exit(status_of(error))


def status_of(error: TidegateError) -> int:
    if isinstance(error, Unreachable):
        return NO_ANSWER
    if isinstance(error, Damaged):
        return DAMAGED
    return NOT_SHOWN if isinstance(error, Refused) and error.code in HINTS else REFUSED


def _tell_more(error: Refused) -> None:
    if error.code in HINTS:
        typer.echo(HINTS[error.code], err=True)
    if error.request_id:
        typer.echo(visible(f"request {error.request_id}"), err=True)


@app.callback()
def choose(
    url: Url = Chosen.url, key: Key = None, output: Form = Output.TABLE, as_json: AsJson = False
) -> None:
    Chosen.url, Chosen.key = url.rstrip("/"), key
    Chosen.output = Output.JSON if as_json else output


@app.command()
def login(
    user: Annotated[str, typer.Option(prompt=True, help="User name or e-mail address.")],
    password: Annotated[str, typer.Option(prompt=True, hide_input=True)],
) -> None:
    """Sign in as a person, for what no API key may do."""

    def ask_code() -> str:
        return str(typer.prompt("Code of your authenticator"))

    signin.remember(Chosen.url, signin.sign_in(Chosen.url, user, password, ask_code))
    typer.echo(f"Signed in at {Chosen.url}.")


@app.command()
def logout() -> None:
    """Forget the session on this machine."""
    signin.forget()


@app.command()
def me() -> None:
    """Who asks, and what they may do."""
    with console() as tidegate:
        show(tidegate.me())
