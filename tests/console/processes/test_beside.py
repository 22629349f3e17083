"""A command typed beside a running installation talks to it; one typed beside nothing is told what is missing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from console.embedded.lock import DirectoryLock, is_locked
from console.processes import beside
from console.processes.environment import stored_secrets

CHOSEN = {"DATABASE_URL": "postgresql:///t", "VALKEY_URL": "unix:///v", "TIDEGATE_GATEWAY_PORT": "9001"}


@pytest.fixture
def running(state_dir: Path) -> DirectoryLock:
    lock = DirectoryLock(state_dir / beside.LOCK)
    lock.acquire()
    beside.announce(state_dir, CHOSEN | {"HOME": "/root"}, environ={})
    return lock


def test_a_command_finds_what_the_installation_chose(state_dir: Path, running: DirectoryLock):
    secrets = stored_secrets(state_dir)
    environ = {"TIDEGATE_STATE_DIR": str(state_dir)}
    beside.join(environ)
    assert environ == {"TIDEGATE_STATE_DIR": str(state_dir), **CHOSEN, **secrets}


def test_only_its_owner_reads_it_and_no_secret_is_in_it(state_dir: Path, running: DirectoryLock):
    stored_secrets(state_dir)
    file = state_dir / "running.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "SECRET" not in file.read_text() and "PEPPER" not in file.read_text()


def test_settings_of_ones_own_are_left_alone(state_dir: Path, running: DirectoryLock):
    environ = {"TIDEGATE_STATE_DIR": str(state_dir), "DATABASE_URL": "postgresql://elsewhere/t"}
    beside.join(environ)
    assert set(environ) == {"TIDEGATE_STATE_DIR", "DATABASE_URL"}


def test_what_a_killed_installation_left_is_not_taken_for_a_running_one(
    state_dir: Path, running: DirectoryLock
):
    running.release()
    environ = {"TIDEGATE_STATE_DIR": str(state_dir)}
    beside.join(environ)
    assert set(environ) == {"TIDEGATE_STATE_DIR"}
    assert not is_locked(state_dir / beside.LOCK)


def test_what_the_caller_has_set_is_not_written_down(state_dir: Path):
    beside.announce(state_dir, CHOSEN, environ={"DATABASE_URL": CHOSEN["DATABASE_URL"]})
    assert "postgresql" not in (state_dir / "running.json").read_text()
    beside.withdraw(state_dir)
    beside.withdraw(state_dir)
    assert not (state_dir / "running.json").exists()
