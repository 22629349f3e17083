"""The light-load client: what it takes off, and what it says when nobody answers."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.light import LightPlan, call

ANSWER = (
    b"HTTP/1.1 200 OK\r\nserver-timing: gateway;dur=0.1, queue;dur=%d, batch_wait;dur=0, execute;dur=0, total;dur=9\r\n"
    b"content-length: 2\r\n\r\n{}"
)


def serve(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        while connection.recv(65536):
            connection.sendall(answer)


def called(answer: bytes) -> tuple[int, float, int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening, answer), daemon=True).start()
        port = listening.getsockname()[1]
        plan = LightPlan(port=port, request="x", connections=1, rate=1000.0, duration_s=0.02)
        outcome = call(plan)
        return outcome.requests, outcome.p50_ms, outcome.errors


def test_what_the_worker_had_it_for_is_taken_off() -> None:
    requests, p50_ms, errors = called(ANSWER % 1_000_000)
    assert (requests, errors) == (20, 0)
    assert p50_ms < -900_000


def test_refusals_are_errors() -> None:
    with pytest.raises(ConnectionError):
        called(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")
