"""The audit trail: events, exports of them, the proof that none is missing, and where they are sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate import documents
from tidegate.errors import Damaged
from tidegate.noun import Noun

Row = dict[str, Any]


class Audit(Noun):
    def events(self, **filters: Any) -> Iterator[documents.Event]:
        """Newest first; filters `tenant`, `q`, `action`, `outcome`, `actor_id`, `target_id`, `since`, `until`."""
        return self._at.rows("/audit", **filters)

    def request_export(
        self, *, format: str, tenant_id: str | None = None, **filters: str
    ) -> documents.Export:
        """A file of the events that match, of one tenant or of the platform; it is written in the background."""
        body = {"format": format, "tenant": tenant_id, **filters}
        made: documents.Export = self._at.post("/audit-exports", body)
        return made

    def export(self, export_id: str) -> documents.Export:
        """How far it is: `state` becomes `done` or `failed`."""
        found: documents.Export = self._at.get(f"/audit-exports/{export_id}")
        return found

    def download(self, export: documents.Export, to: Path) -> None:
        """Fetch a finished file, going on with what came before, and compare it with its digest.

        Raises `Damaged` for another content; the file is removed then.
        """
        self._fetch(f"/audit-exports/{export['id']}/content", export["id"], export["sha256"], to)

    def trail(self, tenant_id: str | None = None) -> Row:
        """How long it is, its last hash, and how far it is signed."""
        return self._one("/audit-trail", tenant=tenant_id)

    def verify(self, tenant_id: str | None = None) -> Row:
        """Has the trail followed from its first event, in the background."""
        return self._post("/audit-verifications", {"tenant": tenant_id})

    def verification(self, verification_id: str) -> Row:
        """`state` becomes `done`; `broken` is the first break, None where there is none."""
        return self._one(f"/audit-verifications/{verification_id}")

    def retention(self, tenant_id: str | None = None) -> int | None:
        """Months; None keeps every event in the database."""
        months: int | None = self._one("/audit-retention", tenant=tenant_id)["months"]
        return months

    def set_retention(self, months: int | None, tenant_id: str | None = None) -> None:
        self._at.put("/audit-retention", {"months": months}, tenant=tenant_id)

    def archives(self, tenant_id: str | None = None) -> Iterator[Row]:
        return self._at.rows("/audit-archives", tenant=tenant_id)

    def download_archive(self, archive_id: str, to: Path) -> None:
        """Like `download`."""
        found = self._one(f"/audit-archives/{archive_id}")
        self._fetch(f"/audit-archives/{archive_id}/content", archive_id, found["sha256"], to)

    def _fetch(self, address: str, name: str, sha256: str, to: Path) -> None:
        part = to.with_name(f"{to.name}.{name}.part")
        self._at.download(address, part)
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            part.unlink()
            raise Damaged(f"{to} is not what the console wrote: its SHA-256 is {digest}.")
        part.replace(to)


class Webhooks(Noun):
    """At most one of each trail."""

    def list(self, tenant_id: str | None = None) -> Iterator[Row]:
        return self._at.rows("/audit-webhooks", tenant=tenant_id)

    def create(self, url: str, tenant_id: str | None = None, *, from_start: bool = False) -> Row:
        """`secret` is in this answer only."""
        return self._post("/audit-webhooks", {"url": url, "tenant": tenant_id, "from_start": from_start})

    def change(self, webhook_id: str, url: str) -> Row:
        changed: Row = self._at.patch(f"/audit-webhooks/{webhook_id}", {"url": url})
        return changed

    def roll(self, webhook_id: str, *, overlap_s: int = 24 * 3600) -> Row:
        """Another secret, in this answer only; the old one signs too for `overlap_s` seconds."""
        return self._post(f"/audit-webhooks/{webhook_id}/roll", {"overlap_s": overlap_s})

    def pause(self, webhook_id: str) -> Row:
        return self._post(f"/audit-webhooks/{webhook_id}/pause")

    def resume(self, webhook_id: str) -> Row:
        return self._post(f"/audit-webhooks/{webhook_id}/resume")

    def delete(self, webhook_id: str) -> None:
        self._at.delete(f"/audit-webhooks/{webhook_id}")

    def dead_letters(self, webhook_id: str) -> Iterator[Row]:
        return self._at.rows(f"/audit-webhooks/{webhook_id}/dead-letters")

    def deliveries(self, webhook_id: str) -> Iterator[Row]:
        return self._at.rows(f"/audit-webhooks/{webhook_id}/deliveries")

    def resend(self, webhook_id: str, letter: int | None = None) -> int:
        """One dead letter, or all; how many."""
        return int(self._post(f"/audit-webhooks/{webhook_id}/resend", {"letter": letter})["events"])
