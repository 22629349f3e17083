"""The replicas this gateway can reach, and which of them gets the next request.

Every address a deployment names is connected and kept connected (a new try each 100 ms), so that a
restarted worker is used again as soon as it says it accepts, without anybody else being asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import structlog

from serving.contract import ReplicaSpec, VersionEntry
from serving.gateway.breaker import Breaker
from serving.gateway.link import Link
from serving.gateway.pending import Pending
from serving.gateway.versions import ServedVersion
from serving.telemetry.resilience import VersionRow
from serving.wire import (
    PROTOCOL_VERSION,
    Amend,
    Chunk,
    Credit,
    Failure,
    Frame,
    FrameError,
    Hello,
    Kind,
    Result,
    decode_chunk,
    decode_failure,
    decode_hello,
    decode_result,
    encode,
)

log = structlog.get_logger("tidegate.gateway.replicas")

RECONNECT_S = 0.1
MISMATCH_S = 1.0
CONNECT_TIMEOUT_S = 2.0
PING_S = 1.0
SILENT_PINGS = 5
"""A link on which nothing came for this many pings is taken for dead (a host that vanished)."""
STUCK_S = 1.5
"""A replica that had work and gave no answer to anybody for so long fails the requests whose deadline passes."""


_RESULT = int(Kind.RESULT)
"""An enumeration's member costs more to find than all else of the comparison."""


class Outcomes(Protocol):
    """Who is told what became of requests."""

    def on_result(self, pending: Pending, result: Result, body: memoryview) -> None: ...

    def on_failure(self, pending: Pending, failure: Failure) -> None: ...

    def on_chunk(self, pending: Pending, chunk: Chunk, body: memoryview) -> None: ...

    def on_link_lost(self, lost: list[Pending]) -> None: ...


class Replica:
    """One worker: its link, its state by its own word, and what this gateway has outstanding there."""

    def __init__(self, spec: ReplicaSpec, pool: ReplicaPool) -> None:
        self.spec = spec
        self._pool = pool
        self.link: Link | None = None
        self.epoch = 0
        self.is_accepting = False
        self.is_removed = False
        self.outstanding_us = 0
        self.streams = 0
        """Streamed answers in flight here."""
        self.breaker = Breaker(random.random)
        self.answers = 0
        """Results, errors and chunks that came back."""
        self._answers_seen = 0
        self._silent_since = time.monotonic()
        self.in_flight: dict[int, Pending] = {}
        self._is_mismatch = False
        self._closed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    # ------------------------------------------------------------ requests

    def send(self, pending: Pending, frame: list[bytes | memoryview]) -> None:
        """Its INFER frame, and keep it until the worker answers."""
        assert self.link is not None
        self.link.send(frame)
        self.in_flight[pending.id] = pending
        self.outstanding_us += pending.predicted_us
        if pending.stream is not None:
            self.streams += 1
        pending.replica = self
        pending.answers_before = self.answers
        if not self.breaker.is_calm:
            pending.probe = self.breaker.claim(pending.lane.tenant_id)

    def amend(self, pending: Pending, amend: Amend) -> None:
        """Tell the worker the request's new terms."""
        if self.link is not None:
            self.link.send(encode(Kind.AMEND, pending.id, amend))

    def cancel(self, pending: Pending) -> None:
        """Ask the worker to drop it; its answer still comes and settles what ran."""
        if self.link is not None:
            self.link.send(encode(Kind.CANCEL, pending.id))

    def grant(self, pending: Pending, chunks: int) -> None:
        """Let the worker send so many chunks more of a streamed answer."""
        if self.link is not None and pending.id in self.in_flight:
            self.link.send(encode(Kind.CREDIT, pending.id, Credit(chunks)))

    # ------------------------------------------------------------ how well it does

    def did_answer(self, pending: Pending) -> None:
        probe, pending.probe = pending.probe, None
        self.breaker.answered(pending.lane.tenant_id, time.monotonic(), probe)
        if probe is not None:
            log.info("circuit.closed", replica=self.spec.id, version=self.spec.version_id)

    def did_fail(self, pending: Pending, code: str) -> None:
        """An outcome that speaks against the replica (or against what this tenant sends it)."""
        probe, pending.probe = pending.probe, None
        with self._watched(code):
            self.breaker.failed(pending.lane.tenant_id, time.monotonic(), probe)

    def did_refuse(self, pending: Pending) -> None:
        """An outcome that says nothing about the replica."""
        probe, pending.probe = pending.probe, None
        if probe is not None:
            self.breaker.release(probe)

    def look(self, now: float) -> None:
        """Called a few times a second: has it said anything since, or nothing to say?"""
        if self.answers != self._answers_seen or not self.in_flight:
            self._answers_seen, self._silent_since = self.answers, now

    def is_stuck(self, pending: Pending, now: float) -> bool:
        """Whether it answered nobody during this request, and for a while: a slow replica does not count."""
        return self.answers == pending.answers_before and now - self._silent_since >= STUCK_S

    @contextlib.contextmanager
    def _watched(self, code: str) -> Iterator[None]:
        """The version is troubled from now on; say so where a circuit opens."""
        opened = self.breaker.opened
        yield
        self._pool.of(self.spec.version_id).is_troubled = True
        if self.breaker.opened != opened:
            log.warning("circuit.opened", replica=self.spec.id, version=self.spec.version_id, after=code)

    # ------------------------------------------------------------ ending

    def remove(self) -> None:
        """Nothing new goes there; the link ends with the last answer."""
        self.is_removed = True
        self._set_accepting(False)
        self._task.cancel()
        self._close_if_done()

    def close(self) -> None:
        self._task.cancel()
        if self.link is not None:
            self.link.close()

    # ------------------------------------------------------------ the link's side

    def on_frames(self, link: Link, frames: Sequence[Frame]) -> None:
        on_result = self._pool.outcomes.on_result
        for request_id, kind, header, body in frames:
            if kind == _RESULT:
                pending = self._take(request_id)
                if pending is not None:
                    on_result(pending, decode_result(header), body)
            elif kind == Kind.ERROR:
                pending = self._take(request_id)
                if pending is not None:
                    self._pool.outcomes.on_failure(pending, decode_failure(header))
            elif kind == Kind.CHUNK:
                self._take_chunk(request_id, decode_chunk(header), body)
            elif kind == Kind.HELLO:
                self._greet(link, decode_hello(header))
            elif kind == Kind.PING:
                link.send(encode(Kind.PONG, request_id))
            elif kind != Kind.PONG:
                raise FrameError(f"a gateway takes no frames of kind {kind}")
        if self.is_removed:
            self._close_if_done()

    def on_lost(self, link: Link) -> None:
        if link is not self.link:
            return
        self.link = None
        self._set_accepting(False)
        self._closed.set()
        lost = list(self.in_flight.values())
        self.in_flight.clear()
        self.outstanding_us = self.streams = 0
        if lost:
            log.warning("replica.lost", replica=self.spec.id, in_flight=len(lost))
            self._note_death(lost)
            self._pool.outcomes.on_link_lost(lost)

    def _take(self, request_id: int) -> Pending | None:
        pending = self.in_flight.pop(request_id, None)
        if pending is not None:
            self.answers += 1
            self.outstanding_us -= pending.predicted_us
            if pending.stream is not None:
                self.streams -= 1
        return pending

    def _note_death(self, lost: list[Pending]) -> None:
        probes = [pending.probe for pending in lost if pending.probe is not None]
        with self._watched("replica_lost"):
            self.breaker.lost({pending.lane.tenant_id for pending in lost}, time.monotonic(), probes)
        for pending in lost:
            pending.probe = None

    def _take_chunk(self, request_id: int, chunk: Chunk, body: memoryview) -> None:
        """Raises `FrameError` when nobody asked for chunks."""
        pending = self.in_flight.get(request_id)
        if pending is None:
            return
        if pending.stream is None:
            raise FrameError("a chunk of an answer that was not to be streamed")
        self.answers += 1  # a sign of life like any other
        self._pool.outcomes.on_chunk(pending, chunk, body)

    def _greet(self, link: Link, hello: Hello) -> None:
        """Raises `FrameError` when this is not the worker the deployment means."""
        self._is_mismatch = True
        if hello.protocol != PROTOCOL_VERSION:
            raise FrameError(f"worker speaks protocol {hello.protocol}, not {PROTOCOL_VERSION}")
        if (hello.replica_id, hello.version_id) != (self.spec.id, self.spec.version_id):
            raise FrameError(f"{hello.replica_id} of {hello.version_id} answers at {self.spec.address}")
        if hello.epoch < self.epoch:
            # A replaced worker that outlived its replacement's start.
            raise FrameError(f"epoch {hello.epoch} is older than {self.epoch}")
        self._is_mismatch = False
        if hello.epoch > self.epoch:
            self.breaker.renewed(time.monotonic())
        self.epoch = hello.epoch
        self._set_accepting(hello.is_accepting and not self.is_removed)

    def _set_accepting(self, is_accepting: bool) -> None:
        if is_accepting != self.is_accepting:
            self.is_accepting = is_accepting
            self._pool.on_accepting(self)

    def _close_if_done(self) -> None:
        if not self.in_flight and self.link is not None:
            self.link.close()

    # ------------------------------------------------------------ staying connected

    async def _keep_connected(self) -> None:
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    link = await _connect(self.spec.address, self)
            except (OSError, TimeoutError):
                await asyncio.sleep(RECONNECT_S)
                continue
            except ValueError as error:
                log.error("replica.bad_address", replica=self.spec.id, reason=str(error))
                return
            await self._watch(link)
            # Somebody else answers at this address: no reason to ask ten times a second.
            await asyncio.sleep(MISMATCH_S if self._is_mismatch else RECONNECT_S)

    async def _watch(self, link: Link) -> None:
        """Until the link is lost: ping it, and close it when nothing comes back."""
        silent = seen = 0
        while not self._closed.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await self._closed.wait()
            except TimeoutError:
                silent = silent + 1 if link.received == seen else 0
                seen = link.received
                if silent >= SILENT_PINGS:
                    log.warning("replica.silent", replica=self.spec.id)
                    link.close()
                else:
                    link.send(encode(Kind.PING, silent))

    def adopt(self, link: Link) -> None:
        """The link is the current one from its first byte on."""
        self._closed.clear()
        self.link = link


async def _connect(address: str, replica: Replica) -> Link:
    """Raises `OSError`, or `ValueError` for an address that is neither `unix:…` nor `tcp:host:port`."""
    loop = asyncio.get_running_loop()
    link = Link(replica)
    kind, _, place = address.partition(":")
    replica.adopt(link)
    try:
        if kind == "unix":
            await loop.create_unix_connection(lambda: link, place)
        elif kind == "tcp":
            host, _, port = place.rpartition(":")
            await loop.create_connection(lambda: link, host.strip("[]"), int(port))
        else:
            raise ValueError(f"address {address!r} is neither unix: nor tcp:")
    except BaseException:
        replica.link = None
        raise
    return link


class ReplicaPool:
    """All replicas by id, and the versions they serve."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes
        self.replicas: dict[str, Replica] = {}
        self.served: dict[str, ServedVersion] = {}

    def update(self, specs: Iterable[ReplicaSpec]) -> None:
        """Connect to what is new, let go of what is no longer wanted."""
        wanted = {spec.id: spec for spec in specs}
        for replica_id, replica in list(self.replicas.items()):
            if wanted.get(replica_id) != replica.spec:
                del self.replicas[replica_id]
                replica.remove()
        for replica_id, spec in wanted.items():
            if replica_id not in self.replicas:
                self.replicas[replica_id] = Replica(spec, self)
        for version_id in self.served.keys() - {spec.version_id for spec in wanted.values()}:
            del self.served[version_id]
        for version_id in {spec.version_id for spec in wanted.values()}:
            self._regroup(version_id)

    def on_accepting(self, replica: Replica) -> None:
        if self.replicas.get(replica.spec.id) is replica:
            self._regroup(replica.spec.version_id)
        log.info(
            "replica.accepting" if replica.is_accepting else "replica.not_accepting",
            replica=replica.spec.id,
            epoch=replica.epoch,
        )

    def of(self, version_id: str) -> ServedVersion:
        """What is known of a version that has, or just had, replicas."""
        return self.served.get(version_id) or ServedVersion()

    def is_ready(self, version_id: str) -> bool:
        served = self.served.get(version_id)
        return served is not None and bool(served.accepting)

    def report(self, versions: Mapping[str, VersionEntry]) -> Iterator[VersionRow]:
        """How each version does, for `/metrics`."""
        now = time.monotonic()
        for version_id, served in self.served.items():
            entry = versions.get(version_id)
            if entry is not None:
                yield served.report(entry, now)

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.close()

    def _regroup(self, version_id: str) -> None:
        served = self.served.get(version_id)
        if served is None:
            served = self.served[version_id] = ServedVersion()
        served.replicas = [r for r in self.replicas.values() if r.spec.version_id == version_id]
        served.set_accepting([r for r in served.replicas if r.is_accepting], time.monotonic())
