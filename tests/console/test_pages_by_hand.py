"""What the demo does by code can be done by hand in a browser, and what is refused says why at its field."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.pages.versions import OPTION_WORDS
from serving.contract import CostCurve, MeasuredPoint, ValidationReport
from serving.control.catalog.actions import record_validation
from serving.control.catalog.models import Model, Version
from serving.control.catalog.options import BY_ENGINE
from serving.control.fleet.models import Deployment, Host
from serving.control.profiles.models import ProfileBinding, SlaProfile
from tenants.actions.keys import create_key
from tenants.keys import parse_token
from tenants.models import ApiKey, AuditEvent, Membership, Tenant, User
from tenants.scoping import all_tenants, tenant_scope
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM

TOKEN = re.compile(r"tg_[a-z0-9]{12}_[A-Za-z0-9_-]{43}")
PROFILE = {
    "name": "chat",
    "description": "",
    "sla_class": "interactive",
    "target_p95_ms": "50",
    "deadline_ms": "500",
    "late_policy": "refuse",
    "max_batch_size": "16",
    "max_wait_ms": "0",
    "weight": "1",
    "max_queue": "512",
}


def post(client: Client, address: str, /, *args: object, **values: Any) -> HttpResponse:
    return client.post(reverse(address, args=args), values)


@pytest.fixture(autouse=True)
def everything_is_read() -> Any:
    with all_tenants("tests look at what was written"):
        yield


def test_the_demos_set_up_can_be_done_by_hand(world: World) -> None:
    client = world.client("operator")
    Host.objects.update(last_seen_at=timezone.now() + timedelta(hours=1))
    assert (
        post(client, "tenant_create", name="Acme Chat", slug="acme-chat", max_concurrency=64).status_code
        == 302
    )
    made = post(client, "key_create", "acme-chat", name="bot", scopes=["infer"], expires="never")
    assert parse_token(TOKEN.search(made.content.decode())[0]) is not None  # type: ignore[index]
    assert post(client, "model_create", name="echo-1", audience="all").status_code == 302
    assert (
        post(
            client, "version_register", "echo-1", engine="echo", price="1.5", option_max_batch_rows="8"
        ).status_code
        == 302
    )
    version = Version.objects.get(model__name="echo-1")
    assert (version.state, version.options["max_batch_rows"], version.price_micro_per_device_hour) == (
        "validating",
        8,
        1_500_000,
    )
    _measure(version)
    answer = post(client, "deploy", "echo-1", version=version.pk, replicas=2, device="cpu", threads=1)
    assert answer.status_code == 302, answer.content
    assert Deployment.objects.get(model__name="echo-1").replicas.filter(is_wanted=True).count() == 2
    assert post(client, "profile_create", **PROFILE).status_code == 302
    chat = Tenant.objects.get(slug="acme-chat")
    profile = SlaProfile.objects.get(name="chat")
    assert post(client, "profile_bind", profile.pk, tenant=chat.pk, model="", endpoint="").status_code == 302
    with tenant_scope(chat.pk):
        assert ProfileBinding.objects.get(tenant=chat).profile == profile
    assert "chat" in client.get(reverse("tenant", args=["acme-chat"])).content.decode()


def test_a_key_is_shown_once_and_never_kept_in_a_cache(world: World) -> None:
    client = world.client("owner")
    made = post(client, "key_create", "acme", name="bot", scopes=["infer"], expires="30")
    token = TOKEN.search(made.content.decode())[0]  # type: ignore[index]
    assert made.headers["Cache-Control"] == "no-store"
    later = client.get(reverse("tenant", args=["acme"])).content.decode()
    assert token not in later
    assert ApiKey.objects.get(name="bot").display in later


def test_what_an_action_refuses_is_said_at_its_field_and_nothing_is_lost(world: World) -> None:
    answer = post(
        world.client("owner"), "key_create", "acme", name="support chat", scopes=["infer"], expires="30"
    )
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "Another key of this tenant has this name." in page
    assert 'value="support chat"' in page


def test_errors_of_a_pair_of_fields_are_said_at_the_field(world: World) -> None:
    answer = post(world.client("operator"), "profile_create", **{**PROFILE, "target_p95_ms": "900"})
    assert answer.status_code == 422
    assert "The target cannot be longer than the deadline." in answer.content.decode()


def test_a_version_is_refused_with_the_reason(world: World) -> None:
    answer = post(
        world.client("operator"), "version_register", "minilm", engine="encoder", price="0", path="/etc"
    )
    assert answer.status_code == 422
    assert "Refused:" in answer.content.decode()


@pytest.mark.parametrize(("typed", "state"), [("support", "active"), ("support chat", "revoked")])
def test_a_destructive_act_wants_the_name(world: World, typed: str, state: str) -> None:
    post(world.client("owner"), "key_revoke", world.key.pk, name=typed)
    assert ApiKey.objects.get(pk=world.key.pk).state == state


def test_a_profile_shows_what_changes_and_for_whom_before_it_is_saved(world: World) -> None:
    client = world.client("operator")
    values = {**PROFILE, "name": "quick", "max_batch_size": "32", "max_queue": "1024", "target_p95_ms": "40"}
    shown = post(client, "profile_edit", world.profile.pk, **values).content.decode()
    assert "<del>50\u202fms</del>" in shown
    assert "<ins>40\u202fms</ins>" in shown
    assert "acme" in shown
    assert SlaProfile.objects.get(pk=world.profile.pk).target_p95_ms == 50
    post(client, "profile_edit", world.profile.pk, **values, confirmed="1")
    assert SlaProfile.objects.get(pk=world.profile.pk).target_p95_ms == 40


def test_an_account_is_made_with_a_password_that_is_shown_once(world: World) -> None:
    client = world.client("operator")
    made = post(client, "account_create", "acme", username="nina", email="", role="developer")
    password = re.search(r"<code>([A-Za-z0-9_-]{20})</code>", made.content.decode())
    assert password is not None
    assert made.headers["Cache-Control"] == "no-store"
    assert User.objects.get(username="nina").check_password(password[1])
    assert Membership.objects.get(user__username="nina").role == "developer"


def test_an_admin_is_not_offered_a_role_above_their_own(world: World) -> None:
    page = world.client("admin").get(reverse("member_add", args=["acme"])).content.decode()
    assert 'value="developer"' in page
    assert 'value="owner"' not in page


def test_a_dialog_answers_with_a_part_and_a_page_with_a_page(world: World) -> None:
    address = reverse("key_create", args=["acme"])
    client = world.client("owner")
    assert "<html" in client.get(address).content.decode()
    assert "<html" not in client.get(address, headers={"hx-request": "true"}).content.decode()


def test_after_a_dialog_the_browser_is_sent_on_by_header(world: World) -> None:
    address = reverse("key_revoke", args=[world.key.pk])
    answer = world.client("owner").post(address, {"name": "support chat"}, headers={"hx-request": "true"})
    assert answer.headers["HX-Redirect"] == reverse("tenant", args=["acme"])


def test_one_looks_at_one_tenant_or_at_all_of_ones_own(world: World) -> None:
    client = world.client("operator")
    chosen = post(client, "switch_tenant", tenant=world.cast.other.pk, next="/usage/")
    assert chosen.url == "/usage/"  # type: ignore[attr-defined]
    assert world.model.name not in client.get(reverse("models")).content.decode()
    post(client, "switch_tenant", tenant="")
    assert world.model.name in client.get(reverse("models")).content.decode()


def test_nobody_is_sent_to_another_site(world: World) -> None:
    answer = post(world.client("operator"), "switch_tenant", tenant="", next="https://evil.example/")
    assert answer.url == "/"  # type: ignore[attr-defined]


def test_a_tenant_one_does_not_see_cannot_be_chosen(world: World) -> None:
    assert post(world.client("stranger"), "switch_tenant", tenant=world.cast.tenant.pk).status_code == 404


def test_every_write_by_hand_is_in_the_audit_trail(world: World) -> None:
    post(world.client("owner"), "tenant_edit", "acme", name="Acme Inc.")
    event = AuditEvent.objects.first()
    assert event is not None
    assert (event.action, event.actor_name, event.after) == ("tenant.updated", "owner", {"name": "Acme Inc."})


def test_a_model_may_have_any_name_even_new(world: World) -> None:
    """`/models/new/` is a model's page: no address of ours shadows a name."""
    client = world.client("operator")
    post(client, "model_create", name="new", audience="all")
    assert client.get(reverse("model", args=[Model.objects.get(name="new").name])).status_code == 200


def _measure(version: Version) -> None:
    points = (MeasuredPoint(rows=1, tokens=4, execute_ms=1.0),)
    cost = CostCurve(a_ms=1.0, b_ms_per_row=0.1, c_ms_per_token=0.0)
    report = ValidationReport(
        version_id=version.pk,
        attempt=version.validation_attempt,
        ok=True,
        cost=cost,
        points=points,
        memory_bytes=1 << 20,
    )
    assert record_validation(report)


def test_every_active_key_can_be_found_and_revoked_however_many_are_gone(world: World) -> None:
    for number in range(60):
        gone, _ = create_key(by=SYSTEM, tenant=world.cast.tenant, name=f"gone {number}")
        ApiKey.objects.filter(pk=gone.pk).update(revoked_at=timezone.now())
    with patch("console.pages.tenants.MAX_ACTIVE_KEYS", 1):
        page = world.client("owner").get(reverse("tenant", args=["acme"])).content.decode()
    assert reverse("key_revoke", args=[world.key.pk]) in page


def test_a_page_that_watched_a_validation_offers_to_deploy_when_it_ends(world: World) -> None:
    client = world.client("operator")
    Version.objects.filter(model=world.model).update(state="validating")
    waiting = client.get(reverse("model_state", args=[world.model.name])).content.decode()
    assert "every 2s" in waiting
    assert 'id="model-actions"' not in waiting
    Version.objects.filter(model=world.model).update(state="ready")
    Deployment.objects.all().update(state="stopped")
    done = client.get(reverse("model_state", args=[world.model.name])).content.decode()
    assert 'id="model-actions" hx-swap-oob="true"' in done
    assert reverse("deploy", args=[world.model.name]) in done


def test_no_page_shows_a_command_line_for_a_model_that_is_not_there(world: World) -> None:
    with patch("console.pages.keys.visible_models", return_value=Model.objects.none()):
        made = post(
            world.client("operator"),
            "key_create",
            world.cast.tenant.slug,
            name="k",
            scopes=["infer"],
            expires="never",
        )
    assert TOKEN.search(made.content.decode())
    assert "curl" not in made.content.decode()
    with patch("console.pages.overview.visible_models", return_value=Model.objects.none()):
        page = world.client("operator").get("/").content.decode()
    assert "There is no model to ask yet" in page


def test_a_fallback_is_chosen_from_what_fits_and_shown_to_operators_only(world: World) -> None:
    client = world.client("operator")
    post(client, "model_create", name="spare", audience="all")
    post(client, "version_register", "spare", engine="echo", price="0", option_max_batch_rows="8")
    spare = Version.objects.get(model__name="spare")
    address = ("version_fallback", "minilm", world.version.number)
    assert "Nothing else can" in client.get(reverse(address[0], args=address[1:])).content.decode()
    same = {"inputs": world.version.inputs, "outputs": world.version.outputs}
    Version.objects.filter(pk=spare.pk).update(state="ready", **same)
    form = client.get(reverse(address[0], args=address[1:])).content.decode()
    assert "spare/1 (not deployed now)" in form
    assert f'value="{spare.pk}"' in form and f'value="{spare.model_id}"' in form
    assert f'value="{world.version.pk}"' not in form
    assert post(client, *address, fallback="mv_nothing").status_code == 422
    assert post(client, *address, fallback=spare.model_id).status_code == 302
    world.version.refresh_from_db()
    assert world.version.fallback_model == spare.model
    page = client.get(reverse("model", args=["minilm"])).content.decode()
    assert "falls back to spare" in page and "nobody would answer" in page
    seen_by_tenant = world.client("owner").get(reverse("model", args=["minilm"])).content.decode()
    assert "falls back" not in seen_by_tenant
    assert post(client, *address, fallback="").status_code == 302
    world.version.refresh_from_db()
    assert world.version.fallback_model is None


def test_every_option_of_every_engine_has_a_name_for_people() -> None:
    named = {option.name for options in BY_ENGINE.values() for option in options}
    assert named <= OPTION_WORDS.keys()


def test_a_key_is_rolled_in_one_dialog_and_shown_once(world: World) -> None:
    made = post(world.client("owner"), "key_roll", world.key.pk, overlap="24", expires="90")
    assert made.status_code == 200
    page = made.content.decode()
    [token] = set(re.findall(r"tg_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", page))
    assert made["Cache-Control"] == "no-store"
    listed = world.client("owner").get(reverse("tenant", args=["acme"])).content.decode()
    assert "rolled: its successor works beside it" in listed
    assert token.split("_", 2)[2] not in listed
    again = post(world.client("owner"), "key_roll", world.key.pk, overlap="24", expires="90")
    assert "rolled already" in again.content.decode()


def test_a_key_is_bound_to_networks_in_its_dialog(world: World) -> None:
    given = {"name": "office", "scopes": ["infer"], "expires": "30"}
    wrong = post(world.client("owner"), "key_create", "acme", **given, allowed_networks="192.0.2.0/24 x")
    assert "Not a network" in wrong.content.decode()
    post(world.client("owner"), "key_create", "acme", **given, allowed_networks="192.0.2.0/24\n2001:db8::/32")
    listed = world.client("owner").get(reverse("tenant", args=["acme"])).content.decode()
    assert "from 192.0.2.0/24, 2001:db8::/32" in listed
