"""What the console streams: scopes, their group and history names, and the shape of one message.

→ {"do": "snapshot"}                               the client noticed a gap in `seq`
← {"type": "hello", "scope"}                       once, after the socket was accepted
← {"type": "snapshot", "frames": [frame, …],       the last `HISTORY_FRAMES` seconds, oldest first
   "alerts": [alert, …]}                           what fires now; null while that cannot be read
← {"type": "alert", "alert"}                       one fired or resolved: `console.live.alerts`
← {"type": "frame", "epoch", "seq", "at", …}       every second; `seq` grows by one within an epoch
← {"type": "ping"}  → {"do": "pong"}               every `PING_S`
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from serving.telemetry.live import LiveRow, LiveSecond, ReplicaRow

HISTORY_FRAMES = 300
HISTORY_TTL_S = 900
PING_S = 15.0
SILENCE_S = 24.0
"""A client that answers nothing for this long is gone. Looked at with each ping: known within 40 s."""
RECHECK_S = 30.0
"""How often a socket asks again whether its person may still see what it streams."""
CLOSE_SIGNED_OUT = 4401
CLOSE_FORBIDDEN = 4403
ALL = "all"


@dataclass(frozen=True, slots=True)
class Scope:
    """What one socket shows: every tenant, or one."""

    tenant_id: str | None = None

    @property
    def group(self) -> str:
        return f"live.tenant.{self.tenant_id}" if self.tenant_id else "live.all"

    @property
    def history_key(self) -> str:
        return f"tidegate:{self.group}"

    @classmethod
    def parse(cls, text: str) -> Scope:
        """`all`, or a tenant's id."""
        return cls(None if text == ALL else text)

    def __str__(self) -> str:
        return self.tenant_id or ALL


class Names(msgspec.Struct, frozen=True):
    """What ids are called, for the ids that occur in one message."""

    tenants: dict[str, tuple[str, str]] = {}
    """Tenant id → slug, name."""
    versions: dict[str, int] = {}


class FrameMessage(msgspec.Struct, kw_only=True, tag="frame"):
    epoch: int
    seq: int
    at: int
    covered: bool
    rows: list[LiveRow]
    replicas: list[ReplicaRow]
    names: Names


FRAME_PREFIX = '{"type":"frame"'
"""How every frame begins: its tag is written first."""

_encode = msgspec.json.Encoder().encode


def encode_second(second: LiveSecond, *, epoch: int, seq: int, scope: Scope, names: Names) -> str:
    """One message for one scope. A tenant sees its own rows, and no replica that others load too."""
    rows = [row for row in second.rows if scope.tenant_id in (None, row.tenant_id)]
    replicas = [] if scope.tenant_id else second.replicas
    message = FrameMessage(
        epoch=epoch,
        seq=seq,
        at=second.at,
        covered=second.covered,
        rows=rows,
        replicas=replicas,
        names=_mentioned(rows, replicas, names),
    )
    return _encode(message).decode()


def _mentioned(rows: list[LiveRow], replicas: list[ReplicaRow], names: Names) -> Names:
    versions = {r.version_id for r in replicas} | {p.version_id for r in rows for p in (r, *r.parts)}
    return Names(
        tenants={r.tenant_id: names.tenants[r.tenant_id] for r in rows if r.tenant_id in names.tenants},
        versions={v: names.versions[v] for v in versions if v in names.versions},
    )
