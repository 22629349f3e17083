"""What people who watch cost: `python -m benchmarks.consoles [--sockets 200]`.

A demo with light traffic, and real websockets that show all tenants, one message a second each. CPU time of each
process with nobody watching, and with everybody; every socket must have received every second. Every tenth
client then loses a second on purpose, asks for a snapshot, and must find that second in it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection, connect

from benchmarks import machine
from tests.processes.running_demo import RunningDemo, eventually

PROCESSES = {
    "console": "console.processes.web",
    "controller": "controller",
    "valkey": "valkey-server",
    "gateway": "serving.gateway",
}
SETTLE_S, WINDOW_S = 6.0, 15.0
REQUESTS_S = 4.0


class ConsolesCost(msgspec.Struct, kw_only=True):
    """Shares of one core, in percent, by process."""

    sockets: int
    alone: dict[str, float]
    watched: dict[str, float]
    join_cpu_ms: float
    """The console's CPU per socket that joins, its snapshot included."""
    seconds_lost: int
    restored: int
    """Of the seconds lost on purpose, how many a snapshot brought back."""
    dropped: int


class _Watcher:
    """One socket. Keeps the sequence numbers it received."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[int] = []
        self.is_deaf = False
        self.dropped: list[int] = []
        self.snapshot: set[int] = set()

    async def run(self) -> None:
        async for text in self.socket:
            message = msgspec.json.decode(text)
            if message["type"] == "ping":
                await self.socket.send('{"do":"pong"}')
            elif message["type"] == "snapshot":
                self.snapshot = {frame["seq"] for frame in message["frames"]}
            elif message["type"] == "frame" and self.is_deaf:
                self.is_deaf = False
                self.dropped.append(message["seq"])
                await self.socket.send('{"do":"snapshot"}')
            elif message["type"] == "frame":
                self.seen.append(message["seq"])

    @property
    def lost(self) -> int:
        if not self.seen:
            return 1
        whole = set(range(self.seen[0], self.seen[-1] + 1))
        return len(whole - set(self.seen) - set(self.dropped))


def _cookie(demo: RunningDemo) -> str:
    with httpx.Client(base_url=demo.facts["console"], follow_redirects=True) as client:
        client.get("/accounts/login/")
        form = {
            "login": demo.facts["username"],
            "password": demo.facts["password"],
            "csrfmiddlewaretoken": client.cookies["csrftoken"],
        }
        client.post("/accounts/login/", data=form, headers={"referer": demo.facts["console"]})
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


async def _traffic(demo: RunningDemo) -> None:
    async with httpx.AsyncClient(base_url=demo.facts["gateway"]) as client:
        while True:
            await client.post(
                "/v1/embeddings",
                headers=demo.headers(random.choice(["acme-chat", "acme-archive"])),
                json={"model": demo.facts["model"], "input": "high water"},
            )
            await asyncio.sleep(random.expovariate(REQUESTS_S))


def _spent(pids: dict[str, list[int]]) -> dict[str, float]:
    return {name: sum(machine.cpu_s(pid) for pid in of) for name, of in pids.items()}


async def _shares(pids: dict[str, list[int]]) -> dict[str, float]:
    """Percent of one core that each kind of process used in `WINDOW_S`."""
    before, begun = _spent(pids), time.monotonic()
    await asyncio.sleep(WINDOW_S)
    after, took_s = _spent(pids), time.monotonic() - begun
    return {name: round(100 * (after[name] - before[name]) / took_s, 1) for name in pids}


async def measure(demo: RunningDemo, count: int) -> ConsolesCost:
    pids = {name: demo.pids(word)[-1:] for name, word in PROCESSES.items()}
    traffic = asyncio.create_task(_traffic(demo))
    await asyncio.sleep(SETTLE_S)
    alone = await _shares(pids)
    before = _spent(pids)["console"]
    watchers = await _join(demo, count)
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    await asyncio.sleep(SETTLE_S)
    join_ms = 1000 * (_spent(pids)["console"] - before) / count
    watched = await _shares(pids)
    chosen = watchers[::10]
    for watcher in chosen:
        watcher.is_deaf = True
    await asyncio.sleep(3.0)
    for task in [*tasks, traffic]:
        task.cancel()
    return ConsolesCost(
        sockets=count,
        alone=alone,
        watched=watched,
        join_cpu_ms=round(join_ms, 1),
        seconds_lost=sum(watcher.lost for watcher in watchers),
        dropped=sum(len(watcher.dropped) for watcher in chosen),
        restored=sum(seq in watcher.snapshot for watcher in chosen for seq in watcher.dropped),
    )


async def _join(demo: RunningDemo, count: int) -> list[_Watcher]:
    url = demo.facts["console"].replace("http", "ws", 1) + "/live/?scope=all"
    headers = {"cookie": _cookie(demo), "origin": demo.facts["console"]}
    out = []
    for _ in range(count):
        socket = await connect(url, additional_headers=headers, max_size=1 << 24, compression=None)
        out.append(_Watcher(socket))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sockets", type=int, default=200)
    options = parser.parse_args()
    machine.go_first(os.getpid())
    with tempfile.TemporaryDirectory() as home:
        demo = RunningDemo(Path(home) / "state")
        demo.start()
        try:
            eventually(lambda: demo.embed() == 200, 60, "the demo answers")
            cost = asyncio.run(measure(demo, options.sockets))
            print(msgspec.json.encode(cost).decode())
        finally:
            demo.stop()


if __name__ == "__main__":
    main()
