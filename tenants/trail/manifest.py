"""What an export says of itself: how many rows of which chains, its file's digest, and our signature."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tenants.trail import signing
from tenants.trail.checkpoints import checkpoint
from tenants.trail.formats.writer import Row
from tenants.trail.models import AuditExport


@dataclass(slots=True)
class Span:
    """Rows of one chain in an export."""

    first_position: int
    last_position: int
    rows: int
    last_hash: str

    @property
    def has_every_row(self) -> bool:
        """Whether none between the first and the last was left out by a filter."""
        return self.last_position - self.first_position + 1 == self.rows


@dataclass(slots=True)
class Spans:
    """Counts rows by chain as they pass."""

    by_chain: dict[str, Span] = field(default_factory=dict)

    def count(self, rows: Iterable[Row]) -> None:
        for row in rows:
            span = self.by_chain.get(row["chain"])
            if span is None:
                span = self.by_chain[row["chain"]] = Span(row["position"], row["position"], 0, "")
            span.last_position, span.rows = row["position"], span.rows + 1
            span.last_hash = bytes(row["hash"]).hex()

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.by_chain.values())


def manifest_of(export: AuditExport, spans: Spans, file_name: str, now: datetime) -> dict[str, Any]:
    """Signed where there is a key. Only texts, whole numbers and booleans, so that RFC 8785 is easily obeyed."""
    document: dict[str, Any] = {
        "type": "tidegate.audit.export/v1",
        "export": export.pk,
        "tenant_id": export.tenant_id,
        "tenant_name": export.tenant_name,
        "format": export.format,
        "filters": export.filters,
        "requested_by": export.requested_by,
        "created_at": rfc3339(now),
        "file": {"name": file_name, "size_bytes": export.size_bytes, "sha256": export.sha256},
        "rows": spans.rows,
        "chains": {chain: _span(chain, span, now) for chain, span in sorted(spans.by_chain.items())},
    }
    return signed(document)


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with `public_key` and `signature` over everything else in it."""
    if not signing.can_sign():
        return document
    named = document | {"public_key": signing.public_key()}
    return named | {"signature": signing.sign(canonical(named)).hex()}


def is_signed(document: dict[str, Any], trusted: Iterable[str]) -> bool:
    """Whether a key we trust signed what the document says."""
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    key = str(document.get("public_key", ""))
    try:
        signature = bytes.fromhex(str(document.get("signature", "")))
    except ValueError:
        return False
    return key in set(trusted) and signing.is_signed(canonical(unsigned), signature, key)


def canonical(document: dict[str, Any]) -> bytes:
    """RFC 8785, for documents without fractions and with ASCII names."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _span(chain: str, span: Span, now: datetime) -> dict[str, Any]:
    return {
        "first_position": span.first_position,
        "last_position": span.last_position,
        "rows": span.rows,
        "has_every_row": span.has_every_row,
        "last_hash": span.last_hash,
        "checkpoint": _checkpoint(chain, now),
    }


def _checkpoint(chain: str, now: datetime) -> dict[str, Any] | None:
    made = checkpoint(chain, now) if signing.can_sign() else None
    if made is None:
        return None
    return {
        "position": made.position,
        "hash": bytes(made.hash).hex(),
        "at": rfc3339(made.at),
        "public_key": made.public_key,
        "signature": bytes(made.signature).hex(),
    }
