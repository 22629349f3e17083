"""Finds the first row of a chain that is not what was once written.

Everything is computed here, from the rows: a function in the database could have been replaced together with
the rows it vouches for. One pass per chain in pages, so memory does not grow with the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection

from tenants.scoping import all_tenants
from tenants.trail.archives.verify import archives_of, followed
from tenants.trail.canonical import COLUMNS, GENESIS, chain_of, link_hash, record_text
from tenants.trail.checkpoints import linked_chains, message
from tenants.trail.models import AuditCheckpoint
from tenants.trail.signing import is_signed, trusted_keys

PAGE_ROWS = 5_000
LOOKS = 4
"""At a chain of which files are made meanwhile: one is made a day, or a few in a row."""

_ROWS = f"""
SELECT {", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())},
       l.event_seq, l.prev_hash, l.hash
FROM tenants_auditlink l LEFT JOIN tenants_auditevent e ON e.seq = l.event_seq
WHERE l.chain = %s AND l.position > %s ORDER BY l.position LIMIT %s
"""  # noqa: S608 - made of constants
_UNLINKED = """
SELECT e.seq, e.tenant_id FROM tenants_auditevent e
WHERE NOT EXISTS (SELECT FROM tenants_auditlink l WHERE l.event_seq = e.seq)
ORDER BY e.seq LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where a chain is broken."""

    chain: str
    position: int
    seq: int | None
    """Number of the event, where there is one."""
    what: str
    """A key of `SENTENCES`."""

    def __str__(self) -> str:
        return f"{self.chain} at position {self.position}: {SENTENCES[self.what]}"


SENTENCES: dict[str, str] = {
    "changed": "the event is not what was hashed when it was written",
    "missing": "an event or its link was deleted",
    "moved": "the event belongs to another chain",
    "link_changed": "the link does not continue the one before it",
    "not_in_chain": "an event was inserted past the chain",
    "cut_off": "the chain ends before a signed checkpoint",
    "rewritten": "the chain's hash is not the one that was signed",
    "forged": "a signature, of a checkpoint or an archive, is wrong or of a key that is not trusted",
    "archive_missing": "the file of an archive is not there",
    "archive_changed": "the file of an archive is not what was signed, or does not follow what was before it",
}


@dataclass(slots=True)
class Verdict:
    """What one chain's verification found."""

    chain: str
    rows: int = 0
    """Rows that were seen to be whole, from the start."""
    hash: str = ""
    checkpoints: int = 0
    """Signed checkpoints that agree with the rows."""
    broken: Break | None = None


class ChainWalk:
    """Follows one chain link by link; pure. `feed` names what is wrong with a row, or None."""

    def __init__(self, chain: str, position: int = 0, digest: bytes = GENESIS) -> None:
        self.chain, self.position, self.digest = chain, position, digest

    def feed(self, row: dict[str, Any]) -> Break | None:
        """Rows must come in the order of their positions."""
        expected = self.position + 1
        wrong = self._fault(row, expected)
        if wrong is not None:
            return Break(self.chain, expected, row["event_seq"], wrong)
        self.position, self.digest = expected, bytes(row["hash"])
        return None

    def _fault(self, row: dict[str, Any], expected: int) -> str | None:
        if row["position"] != expected or row["seq"] is None:
            return "missing"
        if bytes(row["prev_hash"]) != self.digest:
            return "link_changed"
        if link_hash(self.digest, record_text(row)) != bytes(row["hash"]):
            return "changed"
        return "moved" if chain_of(row["tenant_id"]) != self.chain else None


def verify(chain: str) -> Verdict:
    """Raises nothing for what it finds: the verdict tells. Rows may be appended or archived meanwhile."""
    with all_tenants("the trail is verified, whoever's events they are"):
        for _ in range(LOOKS):
            known = len(archives_of(chain))
            verdict = _verified(chain)
            if not _moved_meanwhile(verdict, known):
                break
        return verdict


def _moved_meanwhile(verdict: Verdict, known: int) -> bool:
    """Rows that went into a file between two looks seem missing: only then the chain is followed anew."""
    is_missing = verdict.broken is not None and verdict.broken.what == "missing"
    return is_missing and len(archives_of(verdict.chain)) > known


def verify_all() -> Iterator[Verdict]:
    for chain in chains():
        yield verify(chain)


def chains() -> list[str]:
    """Every chain that has rows, signatures, or events that were never chained."""
    signed = AuditCheckpoint.objects.order_by().values_list("chain", flat=True).distinct()
    with all_tenants("the trail is verified, whoever's events they are"):
        return sorted({*linked_chains(), *signed, *(chain for _, chain in _unlinked())})


def _verified(chain: str) -> Verdict:
    verdict, walk = Verdict(chain), ChainWalk(chain)
    signed = _checkpoints(chain)
    verdict.broken = _archived(walk, signed, verdict)
    if verdict.broken is not None:
        verdict.hash = walk.digest.hex()
        return verdict
    for row in _rows(chain, walk.position):
        verdict.broken = walk.feed(row) or _contradiction(walk, signed.pop(walk.position, []), verdict)
        if verdict.broken is not None:
            break
        verdict.rows = walk.position
    verdict.hash = walk.digest.hex()
    verdict.broken = verdict.broken or _cut_off(chain, walk, signed) or _past_the_chain(chain)
    return verdict


def _archived(walk: ChainWalk, signed: dict[int, list[AuditCheckpoint]], verdict: Verdict) -> Break | None:
    """Follow what left the database, file after file, with the same eyes."""
    for archive in archives_of(walk.chain):
        for found in followed(archive, walk.position, walk.digest):
            if isinstance(found, str):
                return Break(walk.chain, walk.position + 1, None, found)
            walk.position, walk.digest = found
            broken = _contradiction(walk, signed.pop(walk.position, []), verdict)
            if broken is not None:
                return broken
            verdict.rows = walk.position
    return None


def _rows(chain: str, position: int) -> Iterator[dict[str, Any]]:
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_ROWS, [chain, position, PAGE_ROWS])
            names = [column.name for column in cursor.description]
            page = cursor.fetchall()
        for values in page:
            yield dict(zip(names, values, strict=True))
        if len(page) < PAGE_ROWS:
            return
        position = page[-1][names.index("position")]


def _checkpoints(chain: str) -> dict[int, list[AuditCheckpoint]]:
    found: dict[int, list[AuditCheckpoint]] = {}
    for each in AuditCheckpoint.objects.filter(chain=chain).order_by("position"):
        found.setdefault(each.position, []).append(each)
    return found


def _contradiction(walk: ChainWalk, signed: list[AuditCheckpoint], verdict: Verdict) -> Break | None:
    for each in signed:
        if not _is_genuine(each):
            return Break(walk.chain, walk.position, None, "forged")
        if bytes(each.hash) != walk.digest:
            return Break(walk.chain, walk.position, None, "rewritten")
        verdict.checkpoints += 1
    return None


def _is_genuine(each: AuditCheckpoint) -> bool:
    said = message(each.chain, each.position, bytes(each.hash), each.at)
    return each.public_key in trusted_keys() and is_signed(said, bytes(each.signature), each.public_key)


def _cut_off(chain: str, walk: ChainWalk, left: dict[int, list[AuditCheckpoint]]) -> Break | None:
    beyond = [each for position in sorted(left) for each in left[position]]
    if not beyond:
        return None
    what = "cut_off" if any(map(_is_genuine, beyond)) else "forged"
    return Break(chain, walk.position + 1, None, what)


def _past_the_chain(chain: str) -> Break | None:
    seq = next((seq for seq, of in _unlinked() if of == chain), None)
    return None if seq is None else Break(chain, 0, seq, "not_in_chain")


def _unlinked() -> list[tuple[int, str]]:
    with connection.cursor() as cursor:
        cursor.execute(_UNLINKED)
        return [(int(seq), chain_of(tenant_id)) for seq, tenant_id in cursor.fetchall()]
