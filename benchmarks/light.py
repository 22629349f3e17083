"""What gateway and wire add to an engine's own time when there is little to do.

    python -m benchmarks.light < plan.json > outcome.json

Paced requests on a few connections, each a thread with a blocking socket: nothing of the client's own waits in
an event loop. The overhead of one request is its time here less what its receipt says the worker had it for:
queue, wait for the batch, execution. Everything else is ours: parsing, both ways over two sockets, encoding,
and waking up three processes.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time

import msgspec

_STAGE = re.compile(rb"(queue|batch_wait|execute);dur=([\d.]+)")
_LENGTH = re.compile(rb"content-length: (\d+)")


class LightPlan(msgspec.Struct, kw_only=True):
    port: int
    request: str
    connections: int
    rate: float
    """Requests per second, all connections together."""
    duration_s: float


class LightOutcome(msgspec.Struct, kw_only=True):
    connections: int
    requests: int
    p50_ms: float
    """Of the overhead, as the other one."""
    p99_ms: float
    errors: int


class Caller(threading.Thread):
    """One connection, one request at a time, at its own pace."""

    def __init__(self, plan: LightPlan, index: int) -> None:
        super().__init__(daemon=True)
        self._plan = plan
        self._offset_s = index / plan.rate
        self.overheads_ms: list[float] = []
        self.errors = 0

    def run(self) -> None:
        plan = self._plan
        request = plan.request.encode()
        interval_s = plan.connections / plan.rate
        with socket.create_connection(("127.0.0.1", plan.port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began = time.perf_counter() + self._offset_s
            for number in range(int(plan.duration_s / interval_s)):
                time.sleep(max(0.0, began + number * interval_s - time.perf_counter()))
                self._ask(sock, request)

    def _ask(self, sock: socket.socket, request: bytes) -> None:
        sent = time.perf_counter()
        sock.sendall(request)
        head = _answer(sock)
        took_ms = (time.perf_counter() - sent) * 1e3
        if head.startswith(b"HTTP/1.1 200"):
            self.overheads_ms.append(took_ms - sum(float(value) for _, value in _STAGE.findall(head)))
        else:
            self.errors += 1


def _answer(sock: socket.socket) -> bytes:
    """The head of one whole answer. Raises `ConnectionError` when the connection ends before."""
    data = b""
    while True:
        part = sock.recv(65536)
        if not part:
            raise ConnectionError("the gateway closed the connection")
        data += part
        head, found, body = data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if found and length is not None and len(body) >= int(length[1]):
            return head


def call(plan: LightPlan) -> LightOutcome:
    callers = [Caller(plan, index) for index in range(plan.connections)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    overheads = sorted(value for caller in callers for value in caller.overheads_ms)
    if not overheads:
        raise ConnectionError("no request was answered")
    return LightOutcome(
        connections=plan.connections,
        requests=len(overheads),
        p50_ms=round(overheads[len(overheads) // 2], 3),
        p99_ms=round(overheads[int(len(overheads) * 0.99)], 3),
        errors=sum(caller.errors for caller in callers),
    )


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=LightPlan)
    sys.setswitchinterval(0.0005)
    sys.stdout.buffer.write(msgspec.json.encode(call(plan)))


if __name__ == "__main__":
    main()
