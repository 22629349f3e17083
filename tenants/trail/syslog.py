"""Every audit event as a syslog message (RFC 5424) over TCP or TLS, octet-counted (RFC 6587).

Chain by chain in order. A cursor moves when the connection took the bytes; while nobody answers nothing is
lost, and the next tick tries again. Syslog knows no receipts: what a dying server had not read yet is missing
there, and the gap shows in the positions.
"""

from __future__ import annotations

import re
import socket
import ssl
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db import transaction

from tenants.scoping import all_tenants
from tenants.trail.canonical import record_text
from tenants.trail.checkpoints import linked_chains
from tenants.trail.formats.writer import Row
from tenants.trail.models import AuditSinkCursor
from tenants.trail.reading import after

log = structlog.get_logger(__name__)

PAGE_ROWS = 500
PAGES_A_TICK = 20
TIMEOUT_S = 5.0
_FACILITY_AUDIT, _WARNING, _INFORMATIONAL = 13, 4, 6
_BOM = b"\xef\xbb\xbf"
_UNPRINTABLE = re.compile(r"[^!-~]")


def stream(address: str) -> int:
    """Send what the server at `address` has not had yet; how many events. Without an address nothing."""
    if not address:
        return 0
    sent = 0
    with all_tenants("a sink of the platform gets every event"):
        try:
            with _connected(address) as server:
                for chain in linked_chains():
                    sent += _stream_chain(address, chain, server)
        except (OSError, ValueError) as error:
            log.warning("audit.syslog_away", address=address, error=str(error), sent=sent)
    return sent


def message(row: Row) -> bytes:
    """One RFC 5424 message, without its length."""
    severity = _INFORMATIONAL if row["outcome"] == "success" else _WARNING
    head = (
        f"<{_FACILITY_AUDIT * 8 + severity}>1 {row['at']} {_name(settings.HOST_NAME, 255)} tidegate - "
        f"{_name(row['action'], 32)} [tidegate@32473{_parameters(row)}] "
    )
    return head.encode() + _BOM + record_text(row).encode()


def _stream_chain(address: str, chain: str, server: socket.socket) -> int:
    sent = 0
    for _ in range(PAGES_A_TICK):
        count = _send_page(address, chain, server)
        sent += count
        if count < PAGE_ROWS:
            break
    return sent


@transaction.atomic
def _send_page(address: str, chain: str, server: socket.socket) -> int:
    """0 also while another process sends this chain."""
    AuditSinkCursor.objects.bulk_create([AuditSinkCursor(sink=address, chain=chain)], ignore_conflicts=True)
    cursor = (
        AuditSinkCursor.objects.select_for_update(skip_locked=True).filter(sink=address, chain=chain).first()
    )
    rows = after(chain, cursor.position, PAGE_ROWS) if cursor else []
    if cursor is None or not rows:
        return 0
    server.sendall(b"".join(_counted(message(row)) for row in rows))
    cursor.position = rows[-1]["position"]
    cursor.save(update_fields=["position"])
    return len(rows)


def _connected(address: str) -> socket.socket:
    """Raises `ValueError` for an address of another kind, `OSError` when nobody answers."""
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or not parts.port:
        raise ValueError("TIDEGATE_AUDIT_SYSLOG is tcp://host:port or tls://host:port")
    server = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
    if parts.scheme == "tcp":
        return server
    try:
        return ssl.create_default_context().wrap_socket(server, server_hostname=parts.hostname)
    except OSError:
        server.close()
        raise


def _counted(text: bytes) -> bytes:
    return str(len(text)).encode() + b" " + text


def _parameters(row: Row) -> str:
    named = {"chain": row["chain"], "position": row["position"], "hash": bytes(row["hash"]).hex()}
    return "".join(f' {name}="{_escaped(str(value))}"' for name, value in named.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _name(text: str, most: int) -> str:
    """Printable ASCII without spaces, as the header's fields want it."""
    return _UNPRINTABLE.sub("_", text)[:most] or "-"
