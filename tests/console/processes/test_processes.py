"""The parts of `manage.py up`, without starting the platform."""

from __future__ import annotations

import argparse
import json
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from console.embedded.errors import ServiceError
from console.embedded.lock import DirectoryLock
from console.embedded.owned import OwnedProcess
from console.processes import beside
from console.processes.backoff import Backoff
from console.processes.environment import SECRET_NAMES, platform_environment, stored_secrets
from console.processes.fleet import environment_of, processes_of
from console.processes.options import UpOptions, add_arguments, from_arguments, parse_cores, parse_port
from console.processes.platform import Platform
from console.processes.ports import require_free
from console.processes.supervised import Supervised, describe_exit
from serving.rotation import rotate_when_large


@pytest.fixture
def options(state_dir: Path) -> UpOptions:
    return UpOptions(state_dir=state_dir, gateways=2)


def test_a_busy_port_names_its_owner_and_the_setting_to_change():
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(ServiceError) as refusal:
            require_free("127.0.0.1", port, "--console-port", "TIDEGATE_CONSOLE_PORT")
    message = str(refusal.value)
    assert f"process {os.getpid()}" in message
    assert "--console-port or TIDEGATE_CONSOLE_PORT" in message
    require_free("127.0.0.1", port, "--console-port", "TIDEGATE_CONSOLE_PORT")


def test_an_address_that_is_not_ours_is_explained():
    with pytest.raises(ServiceError, match="--gateway-port"):
        require_free("203.0.113.7", 8001, "--gateway-port", "TIDEGATE_GATEWAY_PORT")


def test_secrets_are_created_once_and_are_private(state_dir: Path):
    first = stored_secrets(state_dir)
    assert stored_secrets(state_dir) == first
    assert stat.S_IMODE((state_dir / "secrets.json").stat().st_mode) == 0o600
    assert all(len(value) >= 50 for value in first.values())


def test_a_damaged_secrets_file_is_refused_rather_than_replaced(state_dir: Path):
    (state_dir / "secrets.json").write_text("{}")
    with pytest.raises(ServiceError, match="backup"):
        stored_secrets(state_dir)


def test_a_secret_that_is_new_in_this_release_is_added_once(state_dir: Path):
    old = {"TIDEGATE_SECRET_KEY": "s" * 50, "TIDEGATE_KEY_PEPPER": "p" * 50}
    (state_dir / "secrets.json").write_text(json.dumps(old))
    stored = stored_secrets(state_dir)
    assert old.items() < stored.items()
    assert len(stored["TIDEGATE_AUDIT_KEY"]) >= 50
    assert stored_secrets(state_dir) == stored


def test_secrets_of_the_environment_win_over_stored_ones(options: UpOptions):
    given = {name: name * 3 for name in SECRET_NAMES}
    environment = platform_environment(options, {}, given)
    assert given.items() <= environment.items()
    assert not (options.state_dir / "secrets.json").exists()


def test_children_learn_where_everything_is(options: UpOptions):
    environment = platform_environment(options, {"DATABASE_URL": "postgresql:///x"}, {"LANG": "C"})
    assert environment["DATABASE_URL"] == "postgresql:///x"
    assert environment["TIDEGATE_GATEWAY_PORT"] == "8001"
    assert environment["TIDEGATE_STATE_DIR"] == str(options.state_dir)
    assert environment["LANG"] == "C"


def test_gateways_stop_before_the_agent_and_both_before_the_rest(options: UpOptions):
    stages = {spec.name: spec.stop_stage for spec in processes_of(options)}
    rest = [stages[name] for name in ("controller", "console", "tasks")]
    assert stages["gateway-0"] == stages["gateway-1"] < stages["agent"] < min(rest)


def test_cores_are_read_and_checked():
    core = min(os.sched_getaffinity(0))
    assert parse_cores(f"worker={core},gateway={core}") == {"worker": (core,), "gateway": (core,)}
    for wrong in ("worker", "worker=x", "cat=0", "worker=4096"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_cores(wrong)


def test_a_port_is_a_port():
    assert parse_port("9000") == 9000
    for wrong in ("0", "99999", "-1", "http", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="1 to 65535"):
            parse_port(wrong)


def test_console_and_gateway_cannot_share_a_port(state_dir: Path):
    platform = Platform(UpOptions(state_dir=state_dir, console_port=9000, gateway_port=9000))
    with pytest.raises(ServiceError, match="--gateway-port"):
        platform.start()
    platform.stop()


def test_a_start_withdraws_at_once_what_a_killed_run_announced(state_dir: Path):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        platform = Platform(UpOptions(state_dir=state_dir, console_port=busy.getsockname()[1]))
        for name in ("demo.json", "running.json"):
            (state_dir / name).write_text("{}")
        with pytest.raises(ServiceError):
            platform.start()
        assert list(state_dir.glob("*.json")) == []
        platform.stop()


def test_a_refused_start_leaves_the_announcements_of_the_running_one(state_dir: Path):
    running = DirectoryLock(state_dir / beside.LOCK)
    running.acquire()
    (state_dir / "demo.json").write_text("{}")
    platform = Platform(UpOptions(state_dir=state_dir))
    with pytest.raises(ServiceError, match="in use"):
        platform.start()
    platform.stop()
    running.release()
    assert (state_dir / "demo.json").exists()


def test_the_environment_sets_defaults_and_the_command_line_wins():
    parser = argparse.ArgumentParser()
    add_arguments(parser, {"TIDEGATE_CONSOLE_PORT": "9000", "TIDEGATE_GATEWAY_PORT": "9001"})
    options = from_arguments(vars(parser.parse_args(["--gateway-port", "9999"])))
    assert (options.console_port, options.gateway_port) == (9000, 9999)


def test_logs_stay_bounded(tmp_path: Path):
    log = tmp_path / "x.log"
    for number in range(6):
        log.write_text(str(number) * 11)
        assert rotate_when_large(log, max_bytes=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2", "x.log.3"]
    assert (tmp_path / "x.log.1").read_text().startswith("5")
    assert log.stat().st_size == 0
    assert not rotate_when_large(log, max_bytes=10)


def test_a_crash_loop_slows_down_and_a_stable_process_is_forgiven():
    backoff = Backoff()
    delays = [backoff.delay_s(lived_s=0.0) for _ in range(12)]
    assert delays[0] == backoff.first_s
    assert delays == sorted(delays)
    assert delays[-1] == backoff.ceiling_s
    assert backoff.delay_s(lived_s=backoff.stable_after_s) == backoff.first_s


class FakeProcess:
    name = "fake"
    exit_code = -9

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.is_alive = False


def test_a_dead_process_is_started_again_after_its_pause(tmp_path: Path):
    process, starts, said = FakeProcess(tmp_path / "fake.log"), [], []

    def start() -> None:
        starts.append(1)
        process.is_alive = True

    supervised = Supervised(process, start, said.append)  # type: ignore[arg-type]
    supervised.start(0.0)
    supervised.step(1.0)
    assert len(starts) == 1
    process.is_alive = False
    supervised.step(2.0)
    supervised.step(2.05)
    assert len(starts) == 1
    supervised.step(2.1)
    assert len(starts) == 2
    assert said == [f"fake was killed by SIGKILL, again in 0.1 s; see {tmp_path / 'fake.log'}"]


def test_a_process_that_cannot_even_be_started_is_tried_again(tmp_path: Path):
    said: list[str] = []

    def start() -> None:
        raise OSError("out of processes")

    supervised = Supervised(FakeProcess(tmp_path / "fake.log"), start, said.append)  # type: ignore[arg-type]
    supervised.adopt()
    for now in (1.0, 2.0, 3.0):
        supervised.step(now)
    assert "cannot be started (out of processes)" in said[-1]
    assert supervised.restarts > 0


def test_exits_are_described_for_people():
    assert describe_exit(1) == "ended with code 1"
    assert describe_exit(-15) == "was killed by SIGTERM"


def test_a_process_that_ignores_a_polite_signal_is_killed(tmp_path: Path):
    import signal

    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = OwnedProcess("deaf", [sys.executable, "-c", deaf], tmp_path / "log", ((signal.SIGTERM, 0.2),))
    process.start(os.environ)
    while "up" not in process.log_tail():
        assert process.is_alive
    process.stop()
    assert process.exit_code == -signal.SIGKILL


def test_nobody_is_given_a_secret_they_have_no_use_for(options: UpOptions):
    """The agent's workers may run code of others; sessions are signed by the console alone."""
    secrets = {name: name * 3 for name in SECRET_NAMES}
    given = {spec.name: set(environment_of(spec, secrets)) & set(secrets) for spec in processes_of(options)}
    assert given["agent"] == set()
    assert given["gateway-0"] == given["gateway-1"] == {"TIDEGATE_KEY_PEPPER"}
    assert given["console"] == set(secrets)
