"""Settings of the data-plane processes: environment variables, read once, with the reason each exists.

The console reads the same names in `console/settings.py`; `docs/operations.md` lists them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where a process of the data plane lives and whom it talks to."""

    state_dir: Path
    run_dir: Path
    """Unix sockets and pid files; short enough for a socket path, mode 0700."""
    database_url: str | None
    valkey_url: str | None
    key_pepper: bytes
    """Secret of the key digests; every gateway and the console share it."""
    host: str
    """Name of this machine in reports and placements."""
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 8001
    poll_interval_s: float = 0.25
    """How often the seam is asked for changes; bounds how long a revoked key still works."""
    max_body_bytes: int = 16 << 20
    idempotency_bytes: int = 64 << 20
    """What answers kept for repetition may take in Valkey, which has other work too."""
    quotas_fail_open: bool = True
    """While Valkey is away: each gateway grants its part of a quota, or (False) refuses whom one binds."""
    batch_min_share: float = 0.05
    """Part of each device's time that waiting work of the `batch` class gets, whatever waits above it."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose `x-forwarded-for` says where a client is; of all others it is ignored."""
    has_hot_routes: bool = True
    """False serves every request by plain ASGI: slower, for comparison and for doubt."""


def read(environ: Mapping[str, str] = os.environ, *, needs_pepper: bool = True) -> Runtime:
    """Raises `ValueError` naming the variable when one is missing or malformed.

    Who digests no keys (the agent) needs no pepper, and is given none.
    """
    state_dir = Path(environ.get("TIDEGATE_STATE_DIR", PROJECT_DIR / "var")).resolve()
    pepper = environ.get("TIDEGATE_KEY_PEPPER", "")
    if needs_pepper and len(pepper) < 16:
        raise ValueError("TIDEGATE_KEY_PEPPER must hold at least 16 characters (manage.py up creates one)")
    return Runtime(
        state_dir=state_dir,
        run_dir=Path(environ.get("TIDEGATE_RUN_DIR", state_dir / "run")).resolve(),
        database_url=environ.get("DATABASE_URL") or None,
        valkey_url=environ.get("VALKEY_URL") or None,
        key_pepper=pepper.encode(),
        host=environ.get("TIDEGATE_HOST") or os.uname().nodename,
        trusted_proxies=_networks(environ, "TIDEGATE_TRUSTED_PROXIES"),
        gateway_host=environ.get("TIDEGATE_GATEWAY_HOST", "127.0.0.1"),
        gateway_port=_integer(environ, "TIDEGATE_GATEWAY_PORT", 8001),
        poll_interval_s=_integer(environ, "TIDEGATE_POLL_INTERVAL_MS", 250) / 1000,
        max_body_bytes=_integer(environ, "TIDEGATE_MAX_BODY_BYTES", 16 << 20),
        idempotency_bytes=_integer(environ, "TIDEGATE_IDEMPOTENCY_MIB", 64) << 20,
        quotas_fail_open=_choice(environ, "TIDEGATE_QUOTAS_WITHOUT_VALKEY", ("fail_open", "fail_closed"))
        == "fail_open",
        batch_min_share=_share(environ, "TIDEGATE_BATCH_MIN_SHARE", 0.05),
        has_hot_routes=_integer(environ, "TIDEGATE_GATEWAY_HOT_ROUTES", 1) != 0,
    )


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None


def _share(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "")
    try:
        share = float(text) if text else default
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 0.5:
        raise ValueError(f"{name} must be a number from 0 to 0.5, not {text!r}")
    return share


def _choice(environ: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The first choice is the default."""
    text = environ.get(name) or choices[0]
    if text not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
    return text


def _networks(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = tuple(each.strip() for each in environ.get(name, "").split(",") if each.strip())
    for each in found:
        try:
            ip_network(each)
        except ValueError:
            raise ValueError(f"{name}: {each!r} is no network such as 10.0.0.0/8") from None
    return found
