"""Log lines: one JSON object each, and an exception tells where but never with what."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import logging, structlog
from serving.logs import configure
configure({"level": "INFO"})
def open_door(token):
    raise ValueError("no such door")
for log in (logging.getLogger("stdlib"), structlog.get_logger("structlog")):
    try:
        open_door("tg_secret-in-a-local-variable")
    except ValueError:
        log.exception("door.failed")
"""


def test_an_exception_is_logged_without_the_values_of_local_variables() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["door.failed"] * 2
    assert all(line["exception"][0]["exc_value"] == "no such door" for line in lines)
    assert all(line["exception"][0]["frames"][-1]["name"] == "open_door" for line in lines)
    assert "secret-in-a-local" not in done.stdout
