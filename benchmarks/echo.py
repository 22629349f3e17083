"""What the gateway itself costs: the echo engine behind it, `wrk` in front, everything on.

Gateway on one core; worker and `wrk` share the other. The figure "per gateway core" is what the CPU time
of one request allows a fully used core; it equals the measured rate when the gateway is the bottleneck.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import msgspec

from benchmarks import machine, processes
from benchmarks.light import LightOutcome, LightPlan
from benchmarks.stack import WORKER_CORE, Stack

CONNECTIONS = 64
"""To each gateway: a second one is started for more clients, not for the same."""
LIGHT_RATE = 200.0
LIGHT_CONNECTIONS = (1, 8)
_BODY = '{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[7]}]}'
_PATH = "/v2/models/echo/infer"
_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_PERCENTILE = re.compile(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", re.MULTILINE)
_BAD = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


class EchoOutcome(msgspec.Struct, kw_only=True):
    gateways: int = 1
    """Processes on the one port, all on the gateway's core: their CPU time is added up."""
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    gateway_us_per_request: float
    worker_us_per_request: float
    requests_per_gateway_core: float


def is_possible() -> bool:
    return shutil.which("wrk") is not None


def measure(stack: Stack, directory: Path, seconds: int = 4, connections: int = CONNECTIONS) -> EchoOutcome:
    """Raises `CalledProcessError` when `wrk` fails."""
    script = _write_script(stack, directory)
    began = {name: sum(machine.cpu_of(machine.tree(pid)).values()) for name, pid in stack.pids.items()}
    started = time.perf_counter()
    out = _wrk(stack, script, seconds, connections)
    elapsed = time.perf_counter() - started
    used = {
        name: sum(machine.cpu_of(machine.tree(pid)).values()) - began[name]
        for name, pid in stack.pids.items()
    }
    return _outcome(out, used, elapsed)


def measure_light(stack: Stack, seconds: float = 10.0) -> list[LightOutcome]:
    """What gateway and wire add at 200 requests a second. Raises `CalledProcessError`."""
    return [_light(stack, connections, seconds) for connections in LIGHT_CONNECTIONS]


def _light(stack: Stack, connections: int, seconds: float) -> LightOutcome:
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(_BODY))}
    lines = [f"{name}: {value}" for name, value in (headers | stack.authorization("main")).items()]
    request = "\r\n".join([f"POST {_PATH} HTTP/1.1", *lines, "", _BODY])
    plan = LightPlan(
        port=stack.port, request=request, connections=connections, rate=LIGHT_RATE, duration_s=seconds
    )
    command = ["taskset", "-c", str(WORKER_CORE), *processes.python("-m", "benchmarks.light")]
    output = processes.finished(command, stdin=msgspec.json.encode(plan), timeout_s=seconds + 30)
    return msgspec.json.decode(output, type=LightOutcome)


def _write_script(stack: Stack, directory: Path) -> Path:
    """Mode 0600 by the directory's: it holds a key."""
    headers = {"Content-Type": "application/json"} | stack.authorization("main")
    lines = [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    script = directory / "echo.lua"
    script.write_text("\n".join(['wrk.method = "POST"', f"wrk.body = '{_BODY}'", *lines]))
    return script


def _wrk(stack: Stack, script: Path, seconds: int, connections: int) -> str:
    command = [
        "taskset",
        "-c",
        str(WORKER_CORE),
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--latency",
    ]
    url = f"http://127.0.0.1:{stack.port}{_PATH}"
    return processes.finished([*command, "-s", str(script), url], timeout_s=seconds + 30).decode()


def _outcome(out: str, used_s: dict[str, float], elapsed_s: float) -> EchoOutcome:
    rate = _RATE.search(out)
    if rate is None:
        raise ValueError(f"wrk said something else:\n{out}")
    requests = float(rate[1]) * elapsed_s
    percentiles = {share: float(value) * _MS[unit] for share, value, unit in _PERCENTILE.findall(out)}
    bad = _BAD.search(out)
    gateways = [name for name in used_s if name.startswith("gateway")]
    gateway_us = sum(used_s[name] for name in gateways) / requests * 1e6
    return EchoOutcome(
        gateways=len(gateways),
        requests_per_s=round(float(rate[1]), 0),
        p50_ms=round(percentiles["50"], 2),
        p99_ms=round(percentiles["99"], 2),
        errors=int(bad[1]) if bad else 0,
        gateway_us_per_request=round(gateway_us, 1),
        worker_us_per_request=round(used_s["worker"] / requests * 1e6, 1),
        requests_per_gateway_core=round(1e6 / gateway_us, 0),
    )
