"""Every address × every kind of person, from one table. An address that is not listed fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from serving.control.pricing.actions import set_price
from serving.control.pricing.models import Price
from serving.control.quotas.actions import create_quota
from serving.control.quotas.models import Quota
from tenants.actions.invitations import invite
from tenants.actions.members import remove_member
from tenants.actions.organisations import create_organisation
from tenants.models import AuditArchive, AuditEvent, AuditWebhook, Tenant
from tenants.organisations import Organisation, OrganisationAdmin
from tenants.scoping import all_tenants
from tenants.trail.archives.actions import set_retention
from tenants.trail.archives.step import archive_due
from tenants.trail.exports import request_export, run_export
from tenants.trail.search import Asked
from tenants.trail.webhooks.actions import create_webhook
from tests.console.alerting import alert, alert_rule, silence
from tests.console.conftest import World
from tests.console.tuned import build_encoder, build_run
from tests.tenants.conftest import SYSTEM
from tests.tenants.trail.test_chain import chain_now

PEOPLE = ("operator", "owner", "viewer", "stranger")
"""The stranger owns another tenant."""

_numbers = itertools.count()
Arguments = Callable[[World], list[object]]


def nothing(world: World) -> list[object]:
    return []


def tenant(world: World) -> list[object]:
    return [world.cast.tenant.slug]


def member(world: World) -> list[object]:
    return [world.cast.members["developer"].pk]


def key(world: World) -> list[object]:
    return [world.key.pk]


def model(world: World) -> list[object]:
    return [world.model.name]


def version(world: World) -> list[object]:
    return [world.model.name, world.version.number]


def grant(world: World) -> list[object]:
    return [world.model.name, world.cast.tenant.slug]


def encoder(world: World) -> list[object]:
    return [world.model.name, build_encoder(world.model).number]


def tuning(world: World) -> list[object]:
    return [build_run(build_encoder(world.model)).pk]


def candidate(world: World) -> list[object]:
    return [*tuning(world), 1]


def price(world: World) -> list[object]:
    """Of a model that only the first tenant may use."""
    return [(Price.objects.first() or set_price(by=SYSTEM, model=world.model)).pk]


def deployment(world: World) -> list[object]:
    return [world.deployment.pk]


def profile(world: World) -> list[object]:
    return [world.profile.pk]


def binding(world: World) -> list[object]:
    return [world.binding.pk]


def person(world: World) -> list[object]:
    return [world.cast.users["developer"].pk]


def invitation(world: World) -> list[object]:
    email = f"new-{next(_numbers)}@example.org"
    return [invite(by=SYSTEM, tenant=world.cast.tenant, email=email, role="viewer")[0].pk]


def organisation(world: World) -> list[object]:
    known = Organisation.objects.first()
    return [(known or create_organisation(by=SYSTEM, name="Initech")).pk]


def organisation_admin(world: World) -> list[object]:
    pk = organisation(world)[0]
    person = world.cast.users["nobody"]
    OrganisationAdmin.objects.get_or_create(organisation_id=pk, user=person)
    return [pk, person.pk]


def organisation_tenant(world: World) -> list[object]:
    pk = organisation(world)[0]
    Tenant.objects.filter(pk=world.cast.tenant.pk).update(organisation_id=pk)
    return [pk, world.cast.tenant.slug]


def archive(world: World) -> list[object]:
    with all_tenants("a test"):
        known = AuditArchive.objects.first()
    if known is None:
        set_retention(by=SYSTEM, tenant=world.cast.tenant, months=1)
        chain_now()
        archive_due(timezone.now() + timedelta(days=100))
        return archive(world)
    return [known.pk]


def webhook(world: World) -> list[object]:
    with all_tenants("a test"):
        known = AuditWebhook.objects.first()
    if known is None:
        known, _ = create_webhook(by=SYSTEM, tenant=world.cast.tenant, url="https://siem.example.org/")
    return [known.pk]


def own_session(world: World) -> list[object]:
    return ["ses_no-such-thing"]


def quota(world: World) -> list[object]:
    with all_tenants("a test"):
        known = Quota.objects.first()
    tenant = world.cast.tenant
    return [(known or create_quota(by=SYSTEM, tenant=tenant, resource="requests", window="day", limit=9)).pk]


def event(world: World) -> list[object]:
    with all_tenants("a test"):
        return [AuditEvent.objects.filter(tenant_id=world.cast.tenant.pk).first().event_id]  # type: ignore[union-attr]


def export(world: World) -> list[object]:
    asked = request_export(by=SYSTEM, tenant=world.cast.tenant, format="csv", asked=Asked())
    run_export(asked.pk, timezone.now())
    return [asked.pk]


# name → arguments, method, status for: operator, owner, viewer, stranger
TABLE: dict[str, tuple[Arguments, str, tuple[int, int, int, int]]] = {
    "overview": (nothing, "get", (200, 200, 200, 200)),
    "switch_tenant": (nothing, "post", (302, 302, 302, 302)),
    "models": (nothing, "get", (200, 200, 200, 200)),
    "model_create": (nothing, "get", (200, 403, 403, 403)),
    "model": (model, "get", (200, 200, 200, 404)),
    "model_state": (model, "get", (200, 200, 200, 404)),
    "model_edit": (model, "get", (200, 403, 403, 404)),
    "model_grant": (model, "get", (200, 403, 403, 404)),
    "model_revoke": (grant, "post", (302, 403, 403, 404)),
    "version_register": (model, "get", (200, 403, 403, 404)),
    "version_validate": (version, "post", (302, 403, 403, 404)),
    "version_archive": (version, "get", (200, 403, 403, 404)),
    "version_trust": (version, "get", (200, 403, 403, 404)),
    "version_alias": (version, "get", (200, 403, 403, 404)),
    "version_fallback": (version, "get", (200, 403, 403, 404)),
    "version_tune": (encoder, "get", (200, 403, 403, 404)),
    "tuning": (tuning, "get", (200, 404, 404, 404)),
    "tuning_state": (tuning, "get", (200, 404, 404, 404)),
    "tuning_cancel": (tuning, "post", (302, 404, 404, 404)),
    "tuning_apply": (candidate, "post", (302, 404, 404, 404)),
    "deploy": (model, "get", (200, 403, 403, 404)),
    "deployment_scale": (deployment, "get", (200, 404, 404, 404)),
    "deployment_version": (deployment, "get", (200, 404, 404, 404)),
    "deployment_stop": (deployment, "get", (200, 404, 404, 404)),
    "alerts": (nothing, "get", (200, 200, 200, 200)),
    "alerts_state": (nothing, "get", (200, 200, 200, 200)),
    "alert_history": (nothing, "get", (200, 200, 200, 200)),
    "silences": (nothing, "get", (200, 200, 200, 200)),
    "silence_create": (nothing, "get", (200, 200, 403, 200)),
    "silence_end": (silence, "post", (302, 302, 403, 404)),
    "alert_rules": (nothing, "get", (200, 200, 200, 200)),
    "alert_rule_create": (nothing, "get", (200, 200, 403, 200)),
    "alert_rule_edit": (alert_rule, "get", (200, 200, 403, 404)),
    "alert_rule_switch": (alert_rule, "post", (302, 302, 403, 404)),
    "alert_rule_delete": (alert_rule, "get", (200, 200, 403, 404)),
    "alert_acknowledge": (alert, "get", (200, 200, 403, 404)),
    "alert_silence": (alert, "get", (200, 200, 403, 404)),
    "promises": (nothing, "get", (200, 200, 200, 200)),
    "promises_state": (nothing, "get", (200, 200, 200, 200)),
    "fleet": (nothing, "get", (200, 403, 403, 403)),
    "fleet_state": (nothing, "get", (200, 403, 403, 403)),
    "tenants": (nothing, "get", (200, 200, 200, 200)),
    "tenant_create": (nothing, "get", (200, 403, 403, 403)),
    "tenant": (tenant, "get", (200, 200, 200, 404)),
    "tenant_edit": (tenant, "get", (200, 200, 403, 404)),
    "statement": (tenant, "get", (200, 200, 200, 404)),
    "tenant_suspend": (tenant, "get", (200, 403, 403, 404)),
    "tenant_resume": (tenant, "post", (302, 403, 403, 404)),
    "member_add": (tenant, "get", (200, 200, 403, 404)),
    "account_create": (tenant, "get", (200, 403, 403, 404)),
    "member_invite": (tenant, "get", (200, 200, 403, 404)),
    "invitation_renew": (invitation, "post", (200, 200, 403, 404)),
    "invitation_withdraw": (invitation, "post", (302, 302, 403, 404)),
    "organisations": (nothing, "get", (200, 403, 403, 403)),
    "organisation_create": (nothing, "get", (200, 403, 403, 403)),
    "organisation": (organisation, "get", (200, 404, 404, 404)),
    "organisation_edit": (organisation, "get", (200, 404, 404, 404)),
    "organisation_admin_add": (organisation, "get", (200, 404, 404, 404)),
    "organisation_admin_remove": (organisation_admin, "get", (200, 404, 404, 404)),
    "organisation_tenant": (organisation, "get", (200, 404, 404, 404)),
    "organisation_move_in": (organisation, "get", (200, 404, 404, 404)),
    "organisation_move_out": (organisation_tenant, "post", (302, 404, 404, 404)),
    "people": (nothing, "get", (200, 403, 403, 403)),
    "person": (person, "get", (200, 404, 404, 404)),
    "person_role": (person, "get", (200, 404, 404, 404)),
    "person_password": (person, "get", (200, 404, 404, 404)),
    "person_switch_off": (person, "get", (200, 404, 404, 404)),
    "person_switch_on": (person, "post", (302, 404, 404, 404)),
    "person_reset_factor": (person, "get", (200, 404, 404, 404)),
    "person_end_sessions": (person, "post", (302, 404, 404, 404)),
    "sessions": (nothing, "get", (200, 200, 200, 200)),
    "session_end": (own_session, "post", (404, 404, 404, 404)),
    "sessions_end_others": (nothing, "post", (302, 302, 302, 302)),
    "member_edit": (member, "get", (200, 200, 403, 404)),
    "member_remove": (member, "get", (200, 200, 403, 404)),
    "key_create": (tenant, "get", (200, 200, 403, 404)),
    "key_roll": (key, "get", (200, 200, 403, 404)),
    "key_revoke": (key, "get", (200, 200, 403, 404)),
    "profiles": (nothing, "get", (200, 200, 200, 200)),
    "profile_create": (nothing, "get", (200, 403, 403, 403)),
    "profile": (profile, "get", (200, 200, 200, 404)),
    "profile_edit": (profile, "get", (200, 403, 403, 404)),
    "profile_delete": (profile, "get", (200, 403, 403, 404)),
    "profile_bind": (profile, "get", (200, 403, 403, 404)),
    "binding_unbind": (binding, "get", (200, 403, 403, 404)),
    "quotas": (nothing, "get", (200, 200, 200, 200)),
    "quota_create": (tenant, "get", (200, 200, 403, 404)),
    "quota_edit": (quota, "get", (200, 403, 403, 404)),
    "quota_delete": (quota, "get", (200, 403, 403, 404)),
    "usage": (nothing, "get", (200, 200, 200, 200)),
    "prices": (nothing, "get", (200, 200, 200, 200)),
    "price_create": (nothing, "get", (200, 403, 403, 403)),
    "price_end": (price, "get", (200, 403, 403, 404)),
    "price_withdraw": (price, "get", (200, 403, 403, 404)),
    "usage_export": (nothing, "get", (200, 200, 200, 200)),
    "audit": (nothing, "get", (200, 200, 403, 200)),
    "audit_proof": (nothing, "get", (200, 200, 403, 200)),
    "audit_verify": (nothing, "post", (302, 302, 403, 302)),
    "audit_event": (event, "get", (200, 200, 404, 404)),
    "audit_exports": (nothing, "get", (200, 200, 403, 200)),
    "audit_export_file": (export, "get", (200, 200, 404, 404)),
    "audit_export_manifest": (export, "get", (200, 200, 404, 404)),
    "audit_archives": (nothing, "get", (200, 200, 403, 200)),
    "audit_retention": (nothing, "get", (200, 200, 403, 200)),
    "audit_archive_file": (archive, "get", (200, 200, 404, 404)),
    "audit_archive_manifest": (archive, "get", (200, 200, 404, 404)),
    "audit_webhook": (nothing, "get", (200, 200, 403, 200)),
    "audit_webhook_create": (nothing, "get", (200, 200, 403, 200)),
    "audit_webhook_edit": (webhook, "get", (200, 200, 404, 404)),
    "audit_webhook_roll": (webhook, "get", (200, 200, 404, 404)),
    "audit_webhook_pause": (webhook, "post", (302, 302, 404, 404)),
    "audit_webhook_resume": (webhook, "post", (302, 302, 404, 404)),
    "audit_webhook_resend": (webhook, "post", (302, 302, 404, 404)),
    "audit_webhook_delete": (webhook, "get", (200, 200, 404, 404)),
    "reference": (nothing, "get", (200, 200, 200, 200)),
    "playground": (nothing, "get", (200, 200, 200, 200)),
}
OPEN = {"healthz", "set_language", "join"}
"""Addresses that ask nobody who they are."""
POST_ONLY = {name for name, (_, method, _statuses) in TABLE.items() if method == "post"}


def test_every_address_is_in_the_table() -> None:
    names = set(_names(get_resolver().url_patterns))
    pages = {name for name in names if not name.startswith("api_")}  # tests/console/api has those
    assert pages == set(TABLE) | OPEN


@pytest.mark.parametrize("who", PEOPLE)
def test_everybody_reaches_exactly_what_is_theirs(world: World, who: str) -> None:
    client = world.client(who)
    expected = {name: row[2][PEOPLE.index(who)] for name, row in TABLE.items()}
    found = {}
    for name, (arguments, method, _) in TABLE.items():
        found[name] = getattr(client, method)(reverse(name, args=arguments(world))).status_code
    assert found == expected


def test_without_sign_in_every_page_leads_to_it(world: World) -> None:
    client = world.client("anonymous")
    for name, (arguments, method, _) in TABLE.items():
        answer = getattr(client, method)(reverse(name, args=arguments(world)))
        assert (answer.status_code, answer.url.split("?")[0]) == (302, reverse("account_login")), name


def test_nothing_is_written_by_a_link(world: World) -> None:
    client = world.client("operator")
    found = {name: client.get(reverse(name, args=TABLE[name][0](world))).status_code for name in POST_ONLY}
    assert set(found.values()) == {405}


def test_what_is_not_yours_looks_like_what_does_not_exist(world: World) -> None:
    client = world.client("stranger")
    for name, (arguments, method, _) in TABLE.items():
        if arguments is nothing:
            continue
        real = arguments(world)
        invented = [777 if isinstance(argument, int) else "no-such-thing" for argument in real]
        with CaptureQueriesContext(connection) as asked:
            yours = getattr(client, method)(reverse(name, args=real))
        with CaptureQueriesContext(connection) as asked_of_none:
            none = getattr(client, method)(reverse(name, args=invented))
        assert len(asked) == len(asked_of_none), name  # nor does the time it takes tell them apart
        assert (yours.status_code, none.status_code) == (404, 404), name
        assert _without_request_id(yours.content) == _without_request_id(none.content), name


def test_the_health_probe_needs_no_database() -> None:
    """No `db` fixture: a query would fail the test."""
    from django.test import RequestFactory

    from console.pages.health import healthz

    assert healthz(RequestFactory().get("/healthz")).content == b"ok\n"


def _names(patterns: list[URLPattern | URLResolver], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if not str(pattern.pattern).startswith("accounts/"):
                yield from _names(pattern.url_patterns)
        elif pattern.name:
            yield pattern.name
        else:
            raise AssertionError(f"{pattern} has no name")


def _without_request_id(content: bytes) -> bytes:
    return b"".join(line for line in content.splitlines() if b"req_" not in line)


def test_a_member_who_was_removed_reaches_nothing_of_the_tenant_any_more(world: World) -> None:
    client = world.client("viewer")  # signed in before
    remove_member(by=SYSTEM, membership=world.cast.members["viewer"])
    for name, (arguments, method, statuses) in TABLE.items():
        if arguments is nothing:
            continue
        found = getattr(client, method)(reverse(name, args=arguments(world))).status_code
        assert found == statuses[PEOPLE.index("stranger")], name
