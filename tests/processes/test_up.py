"""`manage.py up` as a person meets it: one command, everything runs; one Ctrl-C, nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.processes

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 90.0
PROCESSES = ("postgres", "valkey", "gateway", "agent", "controller", "console", "tasks")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.05)


class Up:
    """`manage.py up` in a process of its own, without any of this session's services or secrets."""

    def __init__(self, state_dir: Path, *, console_port: int | None = None) -> None:
        self.state_dir = state_dir
        self.console_port = console_port or free_port()
        self.gateway_port = free_port()
        self.printed = state_dir.with_name("printed.txt")
        ports = ["--console-port", str(self.console_port), "--gateway-port", str(self.gateway_port)]
        command = [sys.executable, "manage.py", "up", "--state-dir", str(state_dir), *ports]
        with self.printed.open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=PROJECT_DIR, env=_environment(), stdout=output, stderr=subprocess.STDOUT
            )

    def wait_running(self) -> None:
        until(lambda: "Tidegate runs" in self.output() or self.process.poll() is not None)
        assert self.process.poll() is None, self.output()

    def output(self) -> str:
        return self.printed.read_text()

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, word: str) -> psutil.Process | None:
        """The living direct child whose command contains `word`."""
        children = psutil.Process(self.process.pid).children()
        return next((child for child in children if word in command_of(child)), None)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def command_of(process: psutil.Process) -> str:
    """Empty for one that is gone or a zombie."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _environment() -> dict[str, str]:
    dropped = ("DATABASE_URL", "VALKEY_URL", "DJANGO_SETTINGS_MODULE")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("TIDEGATE_")
    }


def status_of(port: int, path: str) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    started = Up(tmp_path_factory.mktemp("up") / "state")
    try:
        started.wait_running()
        yield started
    finally:
        if started.process.poll() is None:
            started.stop()


def test_the_first_account_is_made_by_a_command_typed_beside_it(up: Up):
    command = [sys.executable, "manage.py", "createoperator", "first"]
    environment = _environment() | {"TIDEGATE_STATE_DIR": str(up.state_dir)}
    done = subprocess.run(
        command, cwd=PROJECT_DIR, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "first is an operator" in done.stdout
    assert "Password (shown once): " in done.stdout


def test_the_console_and_the_gateway_answer(up: Up):
    assert status_of(up.gateway_port, "/livez") == 200
    until(lambda: status_of(up.gateway_port, "/readyz") == 200, within_s=10)
    assert status_of(up.console_port, "/accounts/login/") == 200


def test_secrets_and_sockets_are_private(up: Up):
    for path in (up.state_dir, up.state_dir / "secrets.json", up.state_dir / "run"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert {path.stem for path in (up.state_dir / "log").glob("*.log")} >= set(PROCESSES)


def test_a_second_up_on_the_same_directory_is_refused_naming_the_first(up: Up):
    command = [sys.executable, "manage.py", "up", "--state-dir", str(up.state_dir)]
    second = subprocess.run(
        command, cwd=PROJECT_DIR, env=_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert f"process {up.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("word", ["serving.gateway", "serving.agent", "console.processes.web"])
def test_a_killed_process_is_back_by_itself(up: Up, word: str):
    victim = up.child(word)
    assert victim
    victim.kill()
    until(lambda: (child := up.child(word)) and child.pid != victim.pid, within_s=10)
    until(lambda: status_of(up.gateway_port, "/readyz") == 200, within_s=20)
    until(lambda: status_of(up.console_port, "/accounts/login/") == 200, within_s=20)


@pytest.mark.parametrize("word", ["bin/postgres", "valkey-server"])
def test_a_killed_service_is_back_and_the_console_with_it(up: Up, word: str):
    victim = up.child(word)
    assert victim
    victim.kill()
    until(lambda: up.child(word) != victim, within_s=5)
    assert status_of(up.gateway_port, "/livez") == 200, "the gateway needs neither to live"
    until(lambda: status_of(up.console_port, "/accounts/login/") == 200, within_s=20)
    until(lambda: up.child(word), within_s=10)


def test_ctrl_c_stops_everything_and_leaves_nothing(up: Up):
    left = up.descendants()
    assert len(left) >= len(PROCESSES)
    assert up.stop() == 0, up.output()
    assert not [process for process in left if process.is_running()]
    assert status_of(up.gateway_port, "/livez") is None


def test_kill_9_of_the_parent_leaves_nothing(tmp_path: Path):
    started = Up(tmp_path / "state")
    started.wait_running()
    left = started.descendants()
    started.process.kill()
    started.process.wait()
    until(lambda: not [process for process in left if process.is_running()], within_s=5)


def test_a_busy_port_is_reported_before_anything_is_started(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        started = Up(tmp_path / "state", console_port=busy.getsockname()[1])
        assert started.process.wait(60) == 1
    assert f"is used by process {os.getpid()}" in started.output()
    assert "--console-port or TIDEGATE_CONSOLE_PORT" in started.output()
    assert not (tmp_path / "state" / "postgres").exists()
