"""Frames go in by Valkey, one message per scope and second comes out, and the last of them are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from redis import Redis

from console.live.publish import LivePublisher
from console.live.topics import HISTORY_FRAMES, Names, Scope, encode_second
from serving.telemetry.collector import LAG_S
from serving.telemetry.frames import FRAMES_CHANNEL, LiveFrame, ReplicaGauge, Series, encode_frame, slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.live import LiveRow, LiveSecond, ReplicaRow
from tests.tenants.conftest import Cast, build_cast


def row(tenant_id: str) -> LiveRow:
    return LiveRow(
        tenant_id=tenant_id, model="minilm", version_id="mv_1", sla_class="batch", target_ms=5000.0, rps=3.0
    )  # fmt: skip


def replica() -> ReplicaRow:
    return ReplicaRow(
        replica_id="rep_1", model="minilm", version_id="mv_1", queued=1, running=2, busy=0.5, batches_s=1.0, rows_s=2.0, tokens_s=9.0
    )  # fmt: skip


SECOND = LiveSecond(at=7, covered=True, rows=[row("tnt_a"), row("tnt_b")], replicas=[replica()])
NAMES = Names(tenants={"tnt_a": ("a", "Team A"), "tnt_b": ("b", "Team B")}, versions={"mv_1": 4, "mv_2": 5})


def test_a_tenant_is_sent_its_own_rows_and_names_and_no_replicas() -> None:
    message = json.loads(encode_second(SECOND, epoch=1, seq=2, scope=Scope("tnt_a"), names=NAMES))
    assert [one["tenant_id"] for one in message["rows"]] == ["tnt_a"]
    assert (message["replicas"], message["names"]) == (
        [],
        {"tenants": {"tnt_a": ["a", "Team A"]}, "versions": {"mv_1": 4}},
    )


def test_whoever_sees_all_is_sent_everything() -> None:
    message = json.loads(encode_second(SECOND, epoch=1, seq=2, scope=Scope(), names=NAMES))
    assert (len(message["rows"]), len(message["replicas"]), message["seq"]) == (2, 1, 2)


@pytest.fixture
def people(transactional_db: None) -> Cast:
    return build_cast()


@pytest.fixture
def publisher(people: Cast) -> Iterator[LivePublisher]:
    made = LivePublisher.from_settings()
    made.start()
    yield made
    made.close()


@pytest.fixture
def valkey() -> Iterator[Redis]:
    client = Redis.from_url(settings.VALKEY_URL, decode_responses=True)
    yield client
    client.close()


def series(tenant_id: str) -> Series:
    return Series(
        tenant_id, "minilm", "mv_1", "infer", "interactive", 50_000, 10, {}, 10, 10, 70, 5_000, 20, 0, {},
        slots_of([("total", Histogram({400: 10}, 30_000)), ("batch_rows", Histogram({71: 10}, 40))]),
    )  # fmt: skip


def this_second() -> float:
    """Frames are judged against the time they arrive at, so tests of this module live in the present."""
    return float(int(time.time()))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def test_frames_become_one_message_per_scope(publisher: LivePublisher, people: Cast, valkey: Redis) -> None:
    now = this_second()
    own, other = Scope(people.tenant.pk), Scope(people.other.pk)
    step(publisher, now + LAG_S)
    wait_for(lambda: newest(valkey, own)["at"] == newest(valkey, other)["at"] == now - 1)
    frame = LiveFrame("gateway-t", 1, 1, now + 1, 1.0, (series(people.tenant.pk),))
    gauge = ReplicaGauge("rep_t", "minilm", "mv_1", 1, 0, 0, 0, 0, 0, 0)
    send(valkey, publisher, frame)
    send(valkey, publisher, LiveFrame("worker-t", 1, 1, now + 1, 1.0, (), (gauge,)))
    step(publisher, now + 1 + LAG_S)
    wait_for(lambda: newest(valkey, own)["at"] == newest(valkey, other)["at"] == now)
    mine, theirs = newest(valkey, own), newest(valkey, other)
    assert [one["rps"] for one in mine["rows"]] == [10.0]
    assert (theirs["rows"], theirs["covered"], theirs["seq"]) == ([], True, mine["seq"])
    assert mine["names"]["tenants"] == {people.tenant.pk: ["acme", "Acme"]}


def test_only_the_last_five_minutes_are_kept(publisher: LivePublisher, people: Cast, valkey: Redis) -> None:
    key = Scope(people.tenant.pk).history_key
    valkey.rpush(key, *(json.dumps({"seq": n}) for n in range(HISTORY_FRAMES + 50)))
    step(publisher, this_second() + LAG_S)
    wait_for(lambda: valkey.llen(key) == HISTORY_FRAMES)
    assert 0 < valkey.ttl(key) <= 900


def test_what_is_no_frame_is_dropped_and_the_rest_goes_on(
    publisher: LivePublisher, people: Cast, valkey: Redis
) -> None:
    wait_for(lambda: valkey.publish(FRAMES_CHANNEL, b"\xc1 not a frame") > 0)
    test_frames_become_one_message_per_scope(publisher, people, valkey)


def test_of_many_tenants_only_those_somebody_watches_get_messages(
    publisher: LivePublisher, people: Cast, valkey: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("audience", "publish"):
        monkeypatch.setattr(f"console.live.{module}.READY_TENANTS", 1)
    own, other = Scope(people.tenant.pk), Scope(people.other.pk)
    valkey.delete(own.history_key, other.history_key)
    with valkey.pubsub() as watcher:
        watcher.subscribe(f"tidegate__group__{own.group}")
        wait_for(lambda: watcher.get_message() is not None)
        now = this_second()
        step(publisher, now + LAG_S)
        step(publisher, now + 1 + LAG_S)
        wait_for(lambda: newest(valkey, own)["at"] == now)
    assert newest(valkey, other)["at"] is None


def test_without_valkey_a_step_neither_fails_nor_waits(people: Cast) -> None:
    publisher = LivePublisher("redis://127.0.0.1:1")
    publisher.start()
    started_at = this_second()
    for second in range(3):
        publisher.step(started_at + second + LAG_S)
    publisher.close()


def step(publisher: LivePublisher, now: float) -> None:
    """A step while the second before is on its way would drop its own."""
    wait_for(lambda: publisher._sending is None or publisher._sending.done())
    publisher.step(now)


def newest(valkey: Redis, scope: Scope) -> dict[str, Any]:
    """The last second published to a scope: with `at` None while there is none."""
    texts = valkey.lrange(scope.history_key, -1, -1)
    return json.loads(texts[0]) if texts else {"at": None}


def send(valkey: Redis, publisher: LivePublisher, frame: LiveFrame) -> None:
    """Publish until it was heard: the subscription is made in the background."""

    def heard() -> bool:
        valkey.publish(FRAMES_CHANNEL, encode_frame(frame))
        return any(one.process == frame.process for one, _ in publisher._frames)

    wait_for(heard)
