"""What `manage.py up` and `manage.py demo` can be told, from the command line or the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
PINNABLE = ("console", "tasks", "controller", "gateway", "agent", "worker", "postgres", "valkey")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """One machine's platform. Cores are numbers as `os.sched_setaffinity` takes them."""

    state_dir: Path
    console_host: str = "127.0.0.1"
    console_port: int = 8000
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 8001
    gateways: int = 1
    cpu_cores: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def default_state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where an installation lives when nobody says otherwise: `var/` of the checkout."""
    return Path(environ.get("TIDEGATE_STATE_DIR", PROJECT_DIR / "var")).resolve()


def add_arguments(parser: argparse.ArgumentParser, environ: Mapping[str, str] = os.environ) -> None:
    """Defaults are the environment's settings; the command line wins."""
    parser.add_argument(
        "--state-dir", type=Path, default=default_state_dir(environ), help="data, logs, sockets, secrets"
    )
    parser.add_argument("--console-host", default=environ.get("TIDEGATE_CONSOLE_HOST", "127.0.0.1"))
    parser.add_argument(
        "--console-port", type=parse_port, default=environ.get("TIDEGATE_CONSOLE_PORT", "8000")
    )
    parser.add_argument("--gateway-host", default=environ.get("TIDEGATE_GATEWAY_HOST", "127.0.0.1"))
    parser.add_argument(
        "--gateway-port", type=parse_port, default=environ.get("TIDEGATE_GATEWAY_PORT", "8001")
    )
    parser.add_argument("--gateways", type=int, default=1, help="gateway processes sharing the port")
    parser.add_argument(
        "--cpu-cores",
        type=parse_cores,
        default={},
        metavar="NAME=CORE[+CORE],…",
        help=f"pin processes, e.g. worker=1,gateway=0; names: {' '.join(PINNABLE)}",
    )


def from_arguments(arguments: Mapping[str, Any]) -> UpOptions:
    """`arguments` as parsed; ones that are not ours are ignored."""
    return UpOptions(
        state_dir=Path(arguments["state_dir"]).resolve(),
        console_host=arguments["console_host"],
        console_port=arguments["console_port"],
        gateway_host=arguments["gateway_host"],
        gateway_port=arguments["gateway_port"],
        gateways=max(1, arguments["gateways"]),
        cpu_cores=arguments["cpu_cores"],
    )


def parse_port(text: str) -> int:
    """Raises `argparse.ArgumentTypeError`. The kernel would take a larger number modulo 65536."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 1 to 65535")
    return int(text)


def parse_cores(text: str) -> dict[str, tuple[int, ...]]:
    """`worker=1,gateway=0+2` → cores by process name. Raises `argparse.ArgumentTypeError`."""
    pinned = {}
    for part in filter(None, text.split(",")):
        name, _, cores = part.partition("=")
        if name not in PINNABLE or not cores.replace("+", "").isdigit():
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=CORE with NAME of {', '.join(PINNABLE)}")
        pinned[name] = tuple(int(core) for core in cores.split("+"))
    missing = {core for cores in pinned.values() for core in cores} - os.sched_getaffinity(0)
    if missing:
        raise argparse.ArgumentTypeError(f"this machine has no core {', '.join(map(str, sorted(missing)))}")
    return pinned
