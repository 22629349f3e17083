"""Signed checkpoints: whoever keeps one can prove later that the chain up to it is what it was.

A chain alone does not notice that its newest rows are gone, nor that all of it was computed anew. A signature
over its length and last hash does, as long as the key is not in the hands of who rewrites the rows; each
checkpoint is also logged, so that a copy lies outside the database.
"""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import connection

from tenants.trail.models import AuditCheckpoint, AuditLink
from tenants.trail.signing import can_sign, public_key, sign

log = structlog.get_logger(__name__)

# One descent of the index per chain, however many rows they have.
_CHAINS = """
WITH RECURSIVE c AS (
    (SELECT chain FROM tenants_auditlink ORDER BY chain LIMIT 1)
    UNION ALL
    SELECT (SELECT l.chain FROM tenants_auditlink l WHERE l.chain > c.chain ORDER BY l.chain LIMIT 1)
    FROM c WHERE c.chain IS NOT NULL
)
SELECT chain FROM c WHERE chain IS NOT NULL
"""


def message(chain: str, position: int, digest: bytes, at: datetime) -> bytes:
    """What is signed: five lines of text."""
    moment = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return f"tidegate audit checkpoint v1\n{chain}\n{position}\n{digest.hex()}\n{moment}\n".encode()


def sign_grown_chains(now: datetime) -> int:
    """A checkpoint for every chain that grew since its last one; how many. None without a key."""
    if not can_sign():
        return 0
    return sum(_has_grown(chain) and checkpoint(chain, now) is not None for chain in linked_chains())


def linked_chains() -> list[str]:
    """Every chain that has rows."""
    with connection.cursor() as cursor:
        cursor.execute(_CHAINS)
        return [str(chain) for (chain,) in cursor.fetchall()]


def checkpoint(chain: str, now: datetime) -> AuditCheckpoint | None:
    """A signature over the chain as it is now; None for a chain without rows. Raises `NoSigningKey`."""
    last = AuditLink.objects.filter(chain=chain).order_by("-position").first()
    if last is None:
        return None
    _sign(chain, last.position, bytes(last.hash), now)
    return AuditCheckpoint.objects.get(chain=chain, position=last.position, public_key=public_key())


def _has_grown(chain: str) -> bool:
    end = AuditLink.objects.filter(chain=chain).order_by("-position").values_list("position", flat=True)[:1]
    signed = AuditCheckpoint.objects.filter(chain=chain, public_key=public_key(), position__gte=end)
    return not signed.exists()


def _sign(chain: str, position: int, digest: bytes, now: datetime) -> None:
    signature, key = sign(message(chain, position, digest, now)), public_key()
    made = AuditCheckpoint(
        chain=chain, position=position, hash=digest, at=now, public_key=key, signature=signature
    )
    # Of two processes that sign the same position one is first; both say the same.
    AuditCheckpoint.objects.bulk_create([made], ignore_conflicts=True)
    log.info("audit.checkpoint", chain=chain, position=position, hash=digest.hex(), signature=signature.hex())
