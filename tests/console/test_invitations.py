"""Invitations by link: who is let in, once, for how long, and never above whoever invited them."""

from __future__ import annotations

import re
from datetime import timedelta
from smtplib import SMTPException
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from tenants.actions import invitations
from tenants.actions.invitations import MAX_LETTERS, MAX_OPEN, accept_invitation, invite, renew_invitation
from tenants.actions.members import change_role, remove_member
from tenants.actions.tenants import suspend_tenant
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed
from tenants.models import AuditEvent, Membership, User
from tenants.people import Invitation
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM, last_event

PASSWORD = "correct horse battery staple"


@pytest.fixture
def mailing(settings: Any) -> None:
    settings.SENDS_MAIL = True


def sent_link() -> str:
    found = re.search(r"https?://testserver(/join/\S+)", mail.outbox[-1].body)
    assert found is not None
    return found[1]


def ask(world: World, who: str = "admin", email: str = "new@example.org", role: str = "developer") -> Any:
    return world.client(who).post("/tenants/acme/invitations/new", {"email": email, "role": role})


def roles(world: World, email: str) -> list[str]:
    with all_tenants("a test"):
        rows = Membership.objects.filter(tenant=world.cast.tenant, user__email__iexact=email)
        return list(rows.values_list("role", flat=True))


def join(link: str, username: str = "newcomer") -> Client:
    client = Client()
    client.post(link, {"username": username, "password": PASSWORD})
    return client


def test_a_new_person_gets_mail_makes_an_account_and_is_in(world: World, mailing: None) -> None:
    ask(world)
    assert mail.outbox[0].to == ["new@example.org"]
    client = join(sent_link())
    assert client.get("/tenants/acme/").status_code == 200
    assert roles(world, "new@example.org") == ["developer"]
    with all_tenants("a test"):
        trail = list(
            AuditEvent.objects.filter(tenant_id=world.cast.tenant.pk).values_list("action", flat=True)
        )
    assert {"invitation.sent", "member.added", "invitation.accepted"} <= set(trail)


def test_somebody_with_an_account_signs_in_and_accepts(world: World, mailing: None) -> None:
    ask(world, email="Stranger@Example.org")
    assert "Sign in with it to accept" in Client().get(sent_link()).content.decode()
    client = world.client("stranger")
    assert client.post(sent_link()).status_code == 302
    assert roles(world, "stranger@example.org") == ["developer"]


def test_nobody_else_can_use_it(world: World, mailing: None) -> None:
    ask(world, email="stranger@example.org")
    client = world.client("nobody")
    assert "an account with another address" in client.get(sent_link()).content.decode()
    assert client.post(sent_link()).status_code == 409
    assert join(sent_link()).get("/tenants/acme/").status_code == 302
    assert not User.objects.filter(username="newcomer").exists()


def test_it_works_once(world: World, mailing: None) -> None:
    ask(world)
    join(sent_link())
    assert Client().get(sent_link()).status_code == 404


@pytest.mark.parametrize("how", ["withdrawn", "expired", "sent again", "suspended", "invented"])
def test_a_dead_link_looks_like_one_that_never_was(world: World, mailing: None, how: str) -> None:
    ask(world)
    link = sent_link()
    with all_tenants("a test"):
        row = Invitation.objects.get()
        match how:
            case "withdrawn":
                world.client("admin").post(f"/invitations/{row.pk}/withdraw")
            case "expired":
                Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
            case "sent again":
                world.client("admin").post(f"/invitations/{row.pk}/renew")
            case "suspended":
                suspend_tenant(by=SYSTEM, tenant=world.cast.tenant)
            case "invented":
                link = "/join/" + "x" * 43
    answer = Client().get(link)
    assert answer.status_code == 404 and "This link does not work" in answer.content.decode()


def test_sending_again_makes_a_new_link_that_works(world: World, mailing: None) -> None:
    ask(world)
    with all_tenants("a test"):
        row = Invitation.objects.get()
    world.client("admin").post(f"/invitations/{row.pk}/renew")
    assert len(mail.outbox) == 2
    assert join(sent_link()).get("/tenants/acme/").status_code == 200


@pytest.mark.parametrize("what", ["removed", "demoted"])
def test_it_is_void_once_the_inviter_could_not_add_a_member_any_more(
    world: World, mailing: None, what: str
) -> None:
    ask(world, role="admin")
    member = world.cast.members["admin"]
    if what == "removed":
        remove_member(by=SYSTEM, membership=member)
    else:
        change_role(by=SYSTEM, membership=member, role="viewer")
    client = Client()
    answer = client.post(sent_link(), {"username": "newcomer", "password": PASSWORD})
    assert answer.status_code == 422 and "may not do so any more" in answer.content.decode()
    assert not User.objects.filter(username="newcomer").exists()


def test_nobody_invites_above_their_own_role(world: World) -> None:
    assert ask(world, role="owner").status_code == 422
    with pytest.raises(NotAllowed):
        invite(by=world.cast.actor("admin"), tenant=world.cast.tenant, email="a@example.org", role="owner")


def test_an_unknown_role_is_refused_by_name(world: World) -> None:
    with pytest.raises(Invalid, match="king"):
        invite(by=SYSTEM, tenant=world.cast.tenant, email="a@example.org", role="king")


def test_one_address_has_one_open_invitation(world: World, mailing: None) -> None:
    ask(world)
    answer = ask(world, email="NEW@example.org")
    assert answer.status_code == 422 and "invited already" in answer.content.decode()


def test_without_mail_the_inviter_gets_the_link_once(world: World) -> None:
    answer = ask(world, who="operator")
    text = answer.content.decode()
    link = re.search(r"http://testserver(/join/[\w-]+)", text)
    assert link is not None and answer.headers["Cache-Control"] == "no-store" and not mail.outbox
    assert join(link[1]).get("/tenants/acme/").status_code == 200


def test_a_link_that_did_not_go_by_mail_makes_no_account_unless_an_operator_answers_for_it(
    world: World,
) -> None:
    """Members are added by their address: a tenant's admin must not be able to take somebody else's."""
    link = re.search(r"http://testserver(/join/[\w-]+)", ask(world, who="admin").content.decode())
    assert link is not None
    assert "Ask an operator" in Client().get(link[1]).content.decode()
    join(link[1])
    assert not User.objects.filter(username="newcomer").exists()
    with all_tenants("a test"):
        row = Invitation.objects.get()
    with pytest.raises(NotAllowed, match="operator"):
        invitations.join_as_new_person(
            by=Actor.anonymous(), invitation=row, username="newcomer", password=PASSWORD
        )


def test_a_bad_name_or_password_is_told_at_its_field(world: World, mailing: None) -> None:
    ask(world)
    answer = Client().post(sent_link(), {"username": "owner", "password": PASSWORD})
    assert answer.status_code == 422 and "already exists" in answer.content.decode()
    answer = Client().post(sent_link(), {"username": "newcomer", "password": "short"})
    assert answer.status_code == 422 and "too short" in answer.content.decode()


def test_mail_that_cannot_be_sent_is_told_and_can_be_sent_again(
    world: World, mailing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> int:
        raise SMTPException("no such host")

    monkeypatch.setattr("console.invitation_letters.send_mail", fail)
    client = world.client("admin")
    values = {"email": "new@example.org", "role": "viewer"}
    answer = client.post("/tenants/acme/invitations/new", values, follow=True)
    assert "could not be sent" in answer.content.decode() and "new@example.org" in answer.content.decode()


def test_the_secret_is_in_no_row(world: World, mailing: None) -> None:
    ask(world)
    secret = sent_link().split("/")[-1]
    with all_tenants("a test"):
        everything = str([*AuditEvent.objects.values(), *Invitation.objects.values()])
    assert secret not in everything


def test_open_invitations_are_bounded(world: World) -> None:
    with all_tenants("a test"):
        rows = [
            Invitation(
                tenant=world.cast.tenant,
                email=f"p{n}@example.org",
                role="viewer",
                digest=str(n).encode(),
                proves_address=True,
                expires_at=timezone.now(),
            )
            for n in range(MAX_OPEN)
        ]
        Invitation.objects.bulk_create(rows)
    with pytest.raises(Conflict, match="open invitations"):
        invite(by=SYSTEM, tenant=world.cast.tenant, email="new@example.org", role="viewer")


def test_of_two_uses_one_is_told_that_it_came_late(world: World) -> None:
    by = world.cast.actor("operator")
    row, _ = invite(by=by, tenant=world.cast.tenant, email="nobody@example.org", role="viewer")
    accept_invitation(by=world.cast.actor("nobody"), invitation=row)
    with pytest.raises(Conflict, match="meanwhile"):
        accept_invitation(by=world.cast.actor("nobody"), invitation=row)
    with pytest.raises(Conflict, match="meanwhile"):
        renew_invitation(by=by, invitation=row)


def test_who_is_a_member_already_is_told_so(world: World) -> None:
    by = world.cast.actor("operator")
    row, _ = invite(by=by, tenant=world.cast.tenant, email="viewer@example.org", role="admin")
    with pytest.raises(Invalid, match="member already"):
        accept_invitation(by=world.cast.actor("viewer"), invitation=row)


def test_the_address_of_the_link_is_told_to_nobody(world: World, mailing: None) -> None:
    ask(world)
    answer = Client().get(sent_link())
    assert answer.headers["Referrer-Policy"] == "strict-origin"
    assert answer.headers["Cache-Control"] == "no-store"


def test_joining_leaves_an_account_with_the_invited_address(world: World, mailing: None) -> None:
    ask(world)
    join(sent_link())
    assert User.objects.get(username="newcomer").email == "new@example.org"
    assert last_event().action in ("user.signed_in", "invitation.accepted")
    assert create_user(by=SYSTEM, username="other", email="other@example.org").pk


def test_an_address_is_not_written_to_again_and_again(world: World, mailing: None) -> None:
    ask(world)
    with all_tenants("a test"):
        row = Invitation.objects.get()
    client = world.client("admin")
    for _ in range(MAX_LETTERS + 2):
        client.post(f"/invitations/{row.pk}/renew")
    assert len(mail.outbox) == MAX_LETTERS
    client.post(f"/invitations/{row.pk}/withdraw")
    ask(world, email="NEW@example.org")  # nor by another invitation
    assert len(mail.outbox) == MAX_LETTERS
    with pytest.raises(Conflict, match="invited 5 times"):
        invite(by=world.cast.actor("admin"), tenant=world.cast.tenant, email="new@example.org", role="viewer")


def test_an_address_that_looks_alike_in_capitals_is_not_the_invited_one(world: World, mailing: None) -> None:
    create_user(by=SYSTEM, username="mike", email="m\u0131ke@example.org")
    ask(world, email="mike@example.org")
    assert "Sign in with it to accept" not in Client().get(sent_link()).content.decode()
    client = Client()
    client.force_login(User.objects.get(username="mike"))
    assert client.post(sent_link()).status_code == 409
