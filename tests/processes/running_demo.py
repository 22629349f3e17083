"""A running `manage.py demo` as tests see it: its announcement, its processes, its database."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

PROJECT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 240.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(is_true: Callable[[], Any], within_s: float, what: str) -> Any:
    """The first truthy value within the time, or a failure that names what was waited for."""
    deadline = time.monotonic() + within_s
    while True:
        value = is_true()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.02)


class RunningDemo:
    """Starts it, kills parts of it, asks it; `stop()` ends it as Ctrl-C would."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.console_port, self.gateway_port = free_port(), free_port()
        self.log_path = state_dir.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}

    def start(self) -> None:
        own = {
            "DATABASE_URL",
            "VALKEY_URL",
            "TIDEGATE_SECRET_KEY",
            "TIDEGATE_KEY_PEPPER",
            "TIDEGATE_STATE_DIR",
            "TIDEGATE_RUN_DIR",
            "DJANGO_SETTINGS_MODULE",
        }
        environment = {name: value for name, value in os.environ.items() if name not in own}
        command = [sys.executable, "manage.py", "demo", "--state-dir", str(self.state_dir)]
        command += ["--console-port", str(self.console_port), "--gateway-port", str(self.gateway_port)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=PROJECT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        announcement = self.state_dir / "demo.json"
        eventually(lambda: self._has_ended() or announcement.exists(), START_TIMEOUT_S, self.log())
        assert not self._has_ended(), self.log()
        eventually(lambda: announcement.read_text().endswith("}"), 2, "demo.json is complete")
        self.facts = json.loads(announcement.read_text())

    def stop(self, number: int = signal.SIGINT) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    # ---------------------------------------------------------------- its processes

    def descendants(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def pids(self, *words: str) -> list[int]:
        """Descendants whose command line holds all `words`; parents before their children."""
        found = []
        for process in self.descendants():
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                found.append(process.pid)
        return found

    def kill(self, *words: str) -> int:
        """SIGKILL to the innermost matching process; returns its pid."""
        pid = self.pids(*words)[-1]
        os.kill(pid, signal.SIGKILL)
        return pid

    def manage(self, code: str) -> str:
        """Run `code` in a Django shell with the platform's own environment; what it prints."""
        controller = psutil.Process(self.pids("controller")[0])
        done = subprocess.run(
            [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
            cwd=PROJECT,
            env=controller.environ(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # ---------------------------------------------------------------- its answers

    def headers(self, slug: str = "acme-chat") -> dict[str, str]:
        return {"authorization": f"Bearer {self.facts['tenants'][slug]['api_key']}"}

    def embed(self, text: str = "hello", slug: str = "acme-chat", timeout_s: float = 20.0) -> int:
        """Status of one request; 0 when there was no answer."""
        try:
            return httpx.post(
                f"{self.facts['gateway']}/v1/embeddings",
                headers=self.headers(slug),
                json={"model": self.facts["model"], "input": text},
                timeout=timeout_s,
            ).status_code
        except httpx.HTTPError:
            return 0
