"""`tidegate people`, `members`, `invitations`, `organisations`, `sessions`: who may do what, and where."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.asking import Slug, console, show, show_all, tenant_id_of

people = typer.Typer(no_args_is_help=True, help="Accounts, for operators.")
members = typer.Typer(no_args_is_help=True, help="Members of a tenant.")
invitations = typer.Typer(no_args_is_help=True, help="Invitations to a tenant.")
organisations = typer.Typer(no_args_is_help=True, help="Groups of tenants, and who looks after them.")
sessions = typer.Typer(no_args_is_help=True, help="Where you are signed in.")
Role = Annotated[str, typer.Option(help="owner, admin, developer, viewer or auditor.")]


@people.command("list")
def people_list(q: Annotated[str | None, typer.Option(help="Part of a name or an address.")] = None) -> None:
    """Everybody who can sign in."""
    columns = ("id", "username", "email", "platform_role", "is_active", "has_second_factor", "last_login")
    with console() as tidegate:
        show_all(tidegate.accounts.list(q=q), *columns)


@people.command("switch-off")
def people_switch_off(account_id: str) -> None:
    """Sign somebody out everywhere, and let them in no more."""
    with console() as tidegate:
        show(tidegate.accounts.change(account_id, is_active=False))


@people.command("switch-on")
def people_switch_on(account_id: str) -> None:
    """Let them in again."""
    with console() as tidegate:
        show(tidegate.accounts.change(account_id, is_active=True))


@people.command("reset-factor")
def people_reset_factor(account_id: str) -> None:
    """For whoever lost telephone and recovery codes: their password alone signs in again."""
    with console() as tidegate:
        show(tidegate.accounts.reset_second_factor(account_id))


@people.command("end-sessions")
def people_end_sessions(account_id: str) -> None:
    """Sign somebody out everywhere."""
    with console() as tidegate:
        show({"ended": tidegate.accounts.end_sessions(account_id)})


@members.command("list")
def members_list(tenant: Slug) -> None:
    """Who belongs to a tenant, and as what."""
    with console() as tidegate:
        rows = tidegate.members.list(tenant_id_of(tidegate, tenant))
        show_all(({**row, "username": row["user"]["username"]} for row in rows), "id", "username", "role")


@members.command("add")
def members_add(tenant: Slug, login: str, role: Role = "developer") -> None:
    """Give an account a role in a tenant."""
    with console() as tidegate:
        show(tidegate.members.add(tenant_id_of(tidegate, tenant), login, role))


@members.command("remove")
def members_remove(member_id: str) -> None:
    """Take a member's role away."""
    with console() as tidegate:
        tidegate.members.remove(member_id)


@invitations.command("list")
def invitations_list(tenant: Slug) -> None:
    """Invitations to a tenant, newest first."""
    with console() as tidegate:
        rows = tidegate.invitations.list(tenant_id_of(tidegate, tenant))
        show_all(rows, "id", "email", "role", "state", "invited_by", "expires_at")


@invitations.command("send")
def invitations_send(tenant: Slug, email: str, role: Role = "developer") -> None:
    """Invite somebody. Where the console sends no mail, the link is printed once."""
    with console() as tidegate:
        show(tidegate.invitations.create(tenant_id_of(tidegate, tenant), email, role))


@invitations.command("renew")
def invitations_renew(invitation_id: str) -> None:
    """Send it again: a new link, for another week."""
    with console() as tidegate:
        show(tidegate.invitations.renew(invitation_id))


@invitations.command("withdraw")
def invitations_withdraw(invitation_id: str) -> None:
    """Let the link work no more."""
    with console() as tidegate:
        show(tidegate.invitations.withdraw(invitation_id))


@organisations.command("list")
def organisations_list() -> None:
    """Organisations you look after; every one for operators."""
    with console() as tidegate:
        show_all(tidegate.organisations.list(), "id", "name", "max_tenants", "created_at")


@organisations.command("create")
def organisations_create(
    name: str, max_tenants: Annotated[int, typer.Option(min=1, help="That its admins bring it to.")] = 10
) -> None:
    """Make an organisation."""
    with console() as tidegate:
        show(tidegate.organisations.create(name, max_tenants))


@organisations.command("add-admin")
def organisations_add_admin(organisation_id: str, login: str) -> None:
    """Make somebody an admin of every tenant in it."""
    with console() as tidegate:
        show(tidegate.organisations.add_admin(organisation_id, login))


@organisations.command("tenants")
def organisations_tenants(organisation_id: str) -> None:
    """Its tenants."""
    with console() as tidegate:
        show_all(tidegate.organisations.tenants(organisation_id), "id", "slug", "name", "is_active")


@organisations.command("move-in")
def organisations_move_in(organisation_id: str, tenant: Slug) -> None:
    """Move a tenant there, out of the one it is in."""
    with console() as tidegate:
        tidegate.organisations.move_in(organisation_id, tenant_id_of(tidegate, tenant))


@organisations.command("move-out")
def organisations_move_out(organisation_id: str, tenant: Slug) -> None:
    """Let a tenant belong to none."""
    with console() as tidegate:
        tidegate.organisations.move_out(organisation_id, tenant_id_of(tidegate, tenant))


@sessions.command("list")
def sessions_list() -> None:
    """Where you are signed in."""
    with console() as tidegate:
        show_all(tidegate.sessions.list(), "id", "browser", "ip", "last_seen_at", "is_this_one")


@sessions.command("end")
def sessions_end(session_id: str) -> None:
    """End one."""
    with console() as tidegate:
        tidegate.sessions.end(session_id)


@sessions.command("end-others")
def sessions_end_others() -> None:
    """End every one but this."""
    with console() as tidegate:
        show({"ended": tidegate.sessions.end_others()})
