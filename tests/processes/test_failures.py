"""Each part of the running platform is killed in turn; clients notice as little as was promised."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from tests.processes.running_demo import RunningDemo, eventually

pytestmark = [pytest.mark.processes, pytest.mark.torch]

GRACE_S = 2.0


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    running = RunningDemo(tmp_path_factory.mktemp("demo") / "state")
    running.start()
    yield running
    running.stop()


class Load:
    """Closed-loop requests from a few threads; when each was sent and answered, and how."""

    def __init__(self, demo: RunningDemo, connections: int = 8, slug: str = "acme-archive") -> None:
        self.answers: list[tuple[float, float, int]] = []
        self._demo, self._slug = demo, slug
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(connections)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        eventually(lambda: len(self.answers) > 20, 20, "the load is running")
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        body = {"model": self._demo.facts["model"], "input": "The minutes of the harbour board are lost."}
        with httpx.Client(
            base_url=self._demo.facts["gateway"], headers=self._demo.headers(self._slug), timeout=30
        ) as client:
            while not self._is_over.is_set():
                sent = time.monotonic()
                try:
                    status = client.post("/v1/embeddings", json=body).status_code
                except httpx.HTTPError:
                    status = 0
                self.answers.append((sent, time.monotonic(), status))
                if status != 200:
                    self._is_over.wait(0.02)


def test_the_announcement_for_scripts_is_private_and_complete(demo: RunningDemo) -> None:
    path = demo.state_dir / "demo.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(demo.facts) == {"console", "gateway", "model", "username", "password", "tenants"}
    assert set(demo.facts["tenants"]) == {"acme-chat", "acme-archive"}


def test_all_six_kinds_of_process_run(demo: RunningDemo) -> None:
    for words in (
        ("console.processes.web",),
        ("console.processes.tasks",),
        ("controller",),
        ("serving.gateway",),
        ("serving.agent",),
        ("serving.worker",),
    ):
        assert demo.pids(*words), words


def test_the_demo_printed_both_tenants_and_a_receipt(demo: RunningDemo) -> None:
    log = demo.log()
    for part in ("acme-chat", "acme-archive", "SLA kept", "receipt of req_", "batch_wait", "console  http"):
        assert part in log


def test_a_worker_killed_under_load_fails_nobody_for_long_and_comes_back(demo: RunningDemo) -> None:
    before = _loaded(demo)
    with Load(demo) as load:
        killed_at = time.monotonic()
        demo.kill("serving.worker")
        back_at = eventually(
            lambda: next(
                (done for sent, done, status in load.answers if sent > killed_at + 0.05 and status == 200),
                None,
            ),
            30,
            "an answer after the kill",
        )
    hung = [done - sent for sent, done, status in load.answers if sent < killed_at < done and status != 200]
    assert all(waited <= GRACE_S for waited in hung), hung
    assert {status for _, _, status in load.answers} <= {200, 503}
    epoch, load_s = eventually(lambda: _newer(demo, before), 15, "the new start is reported")
    assert back_at - killed_at <= load_s + GRACE_S, (epoch, back_at - killed_at, load_s)


def test_one_of_two_workers_killed_under_load_fails_nobody(demo: RunningDemo) -> None:
    _scale(demo, 2)
    with Load(demo, connections=64) as load:
        before = len(load.answers)
        demo.kill("serving.worker")
        eventually(lambda: len(load.answers) > before + 640, 60, "ten more answers on each connection")
        eventually(lambda: _ready(demo) == 2, 60, "both serve again")
    assert {status for _, _, status in load.answers} == {200}
    retried, refused = (
        _metric(demo, "tidegate_retries_total", outcome) for outcome in ("retried", "refused")
    )
    assert 0 < retried <= 64 + 0.1 * len(load.answers) and refused == 0
    _scale(demo, 1)


def test_a_key_whose_gateway_was_killed_runs_again_when_its_lease_is_over(demo: RunningDemo) -> None:
    body = {"model": demo.facts["model"], "input": "Only once, please."}
    headers = demo.headers("acme-archive") | {"idempotency-key": f"kill-{time.monotonic_ns()}"}

    def ask() -> httpx.Response | None:
        try:
            return httpx.post(
                f"{demo.facts['gateway']}/v1/embeddings", json=body, headers=headers, timeout=30
            )
        except httpx.HTTPError:
            return None

    def status() -> int:
        answer = ask()
        return answer.status_code if answer is not None else 0

    (worker,) = demo.pids("serving.worker")
    os.kill(worker, signal.SIGSTOP)  # so that the request is in flight when its gateway dies
    try:
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(status), pool.submit(status)]
            eventually(lambda: any(one.done() for one in asked), 4, "one of them is told to wait")
            demo.kill("serving.gateway")
            assert sorted(one.result() for one in asked) == [0, 409]
    finally:
        os.kill(worker, signal.SIGCONT)
    seen: list[int] = []
    eventually(lambda: seen.append(status()) or seen[-1] == 200, 40, "a repetition that runs")
    assert 409 in seen and set(seen) <= {0, 200, 409, 503}
    again = ask()
    assert again is not None and again.headers["idempotency-replayed"] == "true"


def test_a_worker_that_hangs_keeps_nobody_waiting_and_is_replaced(demo: RunningDemo) -> None:
    (hung,) = demo.pids("serving.worker")
    with Load(demo) as load:
        os.kill(hung, signal.SIGSTOP)
        stopped_at = time.monotonic()
        eventually(lambda: hung not in demo.pids("serving.worker"), 60, "the hung worker's end")
        eventually(
            lambda: any(status == 200 and sent > stopped_at + 1 for sent, _, status in load.answers),
            60,
            "an answer of the next worker",
        )
    assert max(done - sent for sent, done, _ in load.answers) < 15
    assert {status for _, _, status in load.answers} <= {200, 503}


def test_a_killed_gateway_is_replaced(demo: RunningDemo) -> None:
    killed = demo.kill("serving.gateway")
    eventually(lambda: demo.embed(timeout_s=5) == 200, 15, "an answer from the new gateway")
    assert killed not in demo.pids("serving.gateway")


def test_answers_continue_while_postgresql_is_killed_and_recovers(demo: RunningDemo) -> None:
    with Load(demo, connections=4) as load:
        killed_at = time.monotonic()
        demo.kill("postgres", "-D")
        eventually(
            lambda: sum(sent > killed_at for sent, _, _ in load.answers) > 100, 30, "answers after the kill"
        )
        eventually(lambda: _signs_in(demo), 30, "the console is back")
    assert {status for _, _, status in load.answers} == {200}


def test_answers_continue_while_valkey_is_killed_and_recovers(demo: RunningDemo) -> None:
    with Load(demo, connections=4) as load:
        killed_at = time.monotonic()
        demo.kill("valkey-server")
        eventually(
            lambda: sum(sent > killed_at for sent, _, _ in load.answers) > 100, 30, "answers after the kill"
        )
    assert {status for _, _, status in load.answers} == {200}
    eventually(lambda: demo.pids("valkey-server"), 15, "valkey is back")


def test_a_killed_controller_and_agent_are_replaced_and_the_model_stays_served(demo: RunningDemo) -> None:
    for words in (("controller",), ("serving.agent",)):
        killed = demo.kill(*words)
        eventually(
            lambda words=words, killed=killed: set(demo.pids(*words)) - {killed}, 15, f"{words} is back"
        )
        eventually(lambda: demo.embed(timeout_s=5) == 200, 30, "the model answers")


def test_a_revoked_key_is_refused_within_a_second(demo: RunningDemo) -> None:
    token, key_id = demo.manage(
        "from tenants.actions.keys import create_key; from tenants.models import Tenant; from tenants.actors import Actor\n"
        "from tenants.scoping import all_tenants\n"
        "with all_tenants('test'):\n"
        "    key, token = create_key(by=Actor.system('test'), tenant=Tenant.objects.get(slug='acme-chat'), name='short-lived')\n"
        "    print(token, key.pk)"
    ).split()
    headers = {"authorization": f"Bearer {token}"}

    def status() -> int:
        return httpx.get(f"{demo.facts['gateway']}/v1/models", headers=headers).status_code

    eventually(lambda: status() == 200, 5, "the new key works")
    revoked_at = float(
        demo.manage(
            "import time; from tenants.actions.keys import revoke_key; from tenants.models import ApiKey; from tenants.actors import Actor\n"
            "from tenants.scoping import all_tenants\n"
            "with all_tenants('test'):\n"
            f"    revoke_key(by=Actor.system('test'), key=ApiKey.objects.get(pk='{key_id}'))\n"
            "print(time.time())"
        )
    )
    eventually(lambda: status() == 401, max(0.1, revoked_at + 1.0 - time.time()), "the key is refused")


def test_a_graceful_stop_answers_what_is_in_flight_and_leaves_no_process(demo: RunningDemo) -> None:
    family = [process for process in demo.descendants() if process.is_running()]
    texts = ["The ledger of the cloth merchants lists forty barrels of lamp oil. " * 6] * 64
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(_embed_many, demo, texts) for _ in range(6)]
        eventually(lambda: _in_flight(demo) >= 6, 10, "the gateway holds all six requests")
        demo.stop(signal.SIGTERM)
        statuses = [future.result() for future in asked]
    assert statuses == [200] * 6
    assert not [
        process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    assert not (demo.state_dir / "demo.json").exists()


def test_a_second_start_is_quick_and_a_killed_parent_leaves_nobody_behind(demo: RunningDemo) -> None:
    started = time.monotonic()
    demo.start()
    assert time.monotonic() - started < 60
    assert "registering the weights" not in demo.log().split("starting postgres")[-1]
    family = demo.descendants()
    assert demo.process is not None
    os.kill(demo.process.pid, signal.SIGKILL)
    demo.process.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def _scale(demo: RunningDemo, replicas: int) -> None:
    demo.manage(
        "from serving.control.fleet.actions import scale; from serving.control.fleet.models import Deployment\n"
        "from tenants.actors import Actor\n"
        f"scale(by=Actor.system('test'), deployment=Deployment.objects.get(state='active'), replicas={replicas})"
    )
    eventually(lambda: _ready(demo) == replicas, 60, f"{replicas} serve")
    eventually(lambda: len(demo.pids("serving.worker")) == replicas, 60, f"{replicas} run")


def _ready(demo: RunningDemo) -> int:
    """Replicas that the gateway may send to."""
    lines = httpx.get(f"{demo.facts['gateway']}/metrics").text.splitlines()
    return sum(line.startswith("tidegate_replica_accepting{") and line.endswith(" 1.0") for line in lines)


def _metric(demo: RunningDemo, name: str, outcome: str) -> float:
    lines = httpx.get(f"{demo.facts['gateway']}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(name + "{") and f'outcome="{outcome}"' in line]
    return sum(float(line.split()[-1]) for line in found)


def _loaded(demo: RunningDemo) -> tuple[int, float]:
    """Epoch and load time of the replica's newest start that is ready."""
    epoch, load_s = demo.manage(
        "from serving.control.fleet.models import Replica\n"
        "replica = Replica.objects.filter(is_wanted=True).first()\n"
        "print(replica.epoch if replica.state == 'ready' else 0, replica.load_s or 0)"
    ).split()
    return int(epoch), float(load_s)


def _newer(demo: RunningDemo, before: tuple[int, float]) -> tuple[int, float] | None:
    now = _loaded(demo)
    return now if now[0] > before[0] else None


def _in_flight(demo: RunningDemo) -> float:
    lines = httpx.get(f"{demo.facts['gateway']}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tidegate_pending_requests{"))


def _embed_many(demo: RunningDemo, texts: list[str]) -> int:
    return httpx.post(
        f"{demo.facts['gateway']}/v1/embeddings",
        headers=demo.headers("acme-archive"),
        json={"model": demo.facts["model"], "input": texts},
        timeout=60,
    ).status_code


def _signs_in(demo: RunningDemo) -> bool:
    try:
        return httpx.get(f"{demo.facts['console']}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
