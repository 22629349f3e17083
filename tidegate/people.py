"""People: accounts, members of tenants, invitations, organisations, and where somebody is signed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.noun import Noun

Row = dict[str, Any]


class Accounts(Noun):
    """Operators only."""

    def list(self, **filters: str | None) -> Iterator[Row]:
        """By part of a name or an address (`q`), or by the whole `username`."""
        return self._at.rows("/accounts", **filters)

    def get(self, account_id: str) -> Row:
        return self._one(f"/accounts/{account_id}")

    def create(self, username: str, **values: str) -> Row:
        """Without a password; `email`, `platform_role`."""
        return self._post("/accounts", {"username": username, **values})

    def change(self, account_id: str, **values: Any) -> Row:
        """`platform_role`, `is_active`."""
        changed: Row = self._at.patch(f"/accounts/{account_id}", values)
        return changed

    def memberships(self, account_id: str) -> Iterator[Row]:
        return self._at.rows(f"/accounts/{account_id}/memberships")

    def sessions(self, account_id: str) -> Iterator[Row]:
        return self._at.rows(f"/accounts/{account_id}/sessions")

    def end_sessions(self, account_id: str) -> int:
        """How many ended."""
        return int(self._post(f"/accounts/{account_id}/end-sessions")["ended"])

    def reset_second_factor(self, account_id: str) -> Row:
        return self._post(f"/accounts/{account_id}/reset-second-factor")


class Sessions(Noun):
    """One's own; a key has none."""

    def list(self) -> Iterator[Row]:
        return self._at.rows("/sessions")

    def end(self, session_id: str) -> None:
        self._at.delete(f"/sessions/{session_id}")

    def end_others(self) -> int:
        """How many ended."""
        return int(self._post("/sessions/end-others")["ended"])


class Members(Noun):
    def list(self, tenant_id: str) -> Iterator[Row]:
        return self._at.rows(f"/tenants/{tenant_id}/members")

    def add(self, tenant_id: str, login: str, role: str) -> Row:
        return self._post(f"/tenants/{tenant_id}/members", {"login": login, "role": role})

    def change(self, member_id: str, role: str) -> Row:
        changed: Row = self._at.patch(f"/members/{member_id}", {"role": role})
        return changed

    def remove(self, member_id: str) -> None:
        self._at.delete(f"/members/{member_id}")


class Invitations(Noun):
    def list(self, tenant_id: str) -> Iterator[Row]:
        return self._at.rows(f"/tenants/{tenant_id}/invitations")

    def create(self, tenant_id: str, email: str, role: str) -> Row:
        """`link` is in this answer only, and only where the console sends no mail."""
        return self._post(f"/tenants/{tenant_id}/invitations", {"email": email, "role": role})

    def renew(self, invitation_id: str) -> Row:
        """Another link for another week."""
        return self._post(f"/invitations/{invitation_id}/renew")

    def withdraw(self, invitation_id: str) -> Row:
        return self._post(f"/invitations/{invitation_id}/withdraw")


class Organisations(Noun):
    def list(self) -> Iterator[Row]:
        return self._at.rows("/organisations")

    def create(self, name: str, max_tenants: int = 10) -> Row:
        return self._post("/organisations", {"name": name, "max_tenants": max_tenants})

    def change(self, organisation_id: str, **values: Any) -> Row:
        """`name`, `max_tenants`."""
        changed: Row = self._at.patch(f"/organisations/{organisation_id}", values)
        return changed

    def admins(self, organisation_id: str) -> Iterator[Row]:
        return self._at.rows(f"/organisations/{organisation_id}/admins")

    def add_admin(self, organisation_id: str, login: str) -> Row:
        return self._post(f"/organisations/{organisation_id}/admins", {"login": login})

    def remove_admin(self, organisation_id: str, account_id: str) -> None:
        self._at.delete(f"/organisations/{organisation_id}/admins/{account_id}")

    def tenants(self, organisation_id: str) -> Iterator[Row]:
        return self._at.rows(f"/organisations/{organisation_id}/tenants")

    def create_tenant(self, organisation_id: str, slug: str, name: str) -> Row:
        return self._post(f"/organisations/{organisation_id}/tenants", {"slug": slug, "name": name})

    def move_in(self, organisation_id: str, tenant_id: str) -> None:
        self._at.put(f"/organisations/{organisation_id}/tenants/{tenant_id}")

    def move_out(self, organisation_id: str, tenant_id: str) -> None:
        self._at.delete(f"/organisations/{organisation_id}/tenants/{tenant_id}")
