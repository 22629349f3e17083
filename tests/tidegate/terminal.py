"""A terminal that types commands at the real console, in the test's own process and transaction."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from tidegate.cli import main as cli


class Terminal:
    """Types commands; what refuses fails the test, unless it is expected to."""

    def __init__(self) -> None:
        self.key: str | None = None
        self._runner = CliRunner()

    def run(self, *words: str, ok: bool = True) -> str:
        """What is on the screen."""
        return str(self._typed(words, ok).output)

    def json(self, *words: str) -> list[dict[str, Any]]:
        """What a program would read."""
        return [json.loads(line) for line in self._typed(("--json", *words), ok=True).stdout.splitlines()]

    def _typed(self, words: tuple[str, ...], ok: bool) -> Result:
        result = self._runner.invoke(cli.app, words, env={"TIDEGATE_API_KEY": self.key})
        assert (result.exception is None) == ok, (result.output, result.exception)
        return result
