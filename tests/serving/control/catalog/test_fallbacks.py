"""Declaring what answers when a version cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from serving.control import publish
from serving.control.catalog import actions, fallbacks
from serving.control.catalog.models import Model, Version
from serving.control.fleet.actions import deploy, stop_deployment
from serving.control.fleet.models import Host
from serving.control.seam_tables import ConfigEntry
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed
from tenants.models import AuditEvent
from tenants.scoping import all_tenants

TEXT = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
ROWS = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def embedding(width: int) -> list[dict[str, Any]]:
    return [{"name": "embedding", "datatype": "FP32", "shape": [-1, width]}]


Make = Callable[..., Version]


def refused(version: Version, fallback: Version | Model, by: Actor) -> str:
    with pytest.raises(Invalid) as caught:
        actions.set_fallback(by=by, version=version, fallback=fallback)
    return str(caught.value.errors["fallback"])


def test_a_fallback_is_audited_and_published(
    make_version: Make, make_host: Callable[..., Host], operator: Actor
) -> None:
    make_host()
    main, spare = make_version("main"), make_version("spare")
    deploy(by=operator, model=main.model, version=main)
    actions.set_fallback(by=operator, version=main, fallback=spare.model)
    assert ConfigEntry.objects.get(kind="version", key=main.pk).body["fallback_model"] == "spare"
    actions.set_fallback(by=operator, version=main, fallback=spare)
    body = ConfigEntry.objects.get(kind="version", key=main.pk).body
    assert body["fallback_version_id"] == spare.pk and "fallback_model" not in body
    actions.set_fallback(by=operator, version=main, fallback=None)
    assert "fallback_version_id" not in ConfigEntry.objects.get(kind="version", key=main.pk).body
    with all_tenants("a test reads the trail"):
        found = AuditEvent.objects.filter(action="version.fallback_set").order_by("pk")
        assert [event.after for event in found] == [
            {"fallback": "spare"},
            {"fallback": "spare/1"},
            {"fallback": None},
        ]
    published = ConfigEntry.objects.get(kind="version", key=main.pk).version
    publish.everything()
    assert ConfigEntry.objects.get(kind="version", key=main.pk).version == published


def test_setting_it_again_is_no_event(make_version: Make, operator: Actor) -> None:
    main, spare = make_version("main"), make_version("spare")
    for _ in range(2):
        actions.set_fallback(by=operator, version=main, fallback=spare)
    with all_tenants("a test reads the trail"):
        assert AuditEvent.objects.filter(action="version.fallback_set").count() == 1


def test_only_who_manages_models_may(make_version: Make) -> None:
    main, spare = make_version("main"), make_version("spare")
    someone = Actor.of_user(create_user(by=Actor.system("test"), username="ann"))
    with pytest.raises(NotAllowed):
        actions.set_fallback(by=someone, version=main, fallback=spare)


def test_a_version_is_not_its_own_fallback_nor_its_models(make_version: Make, operator: Actor) -> None:
    main = make_version("main")
    assert "leads back" in refused(main, main, operator)
    assert "leads back" in refused(main, main.model, operator)


def test_an_older_version_of_the_same_model_may_be(make_version: Make, operator: Actor) -> None:
    old, new = make_version("main"), make_version("main")
    assert actions.set_fallback(by=operator, version=new, fallback=old).fallback_version == old
    assert "leads back" in refused(old, new, operator)


def test_circles_are_refused_however_long(make_version: Make, operator: Actor) -> None:
    a, b, c = make_version("a"), make_version("b"), make_version("c")
    actions.set_fallback(by=operator, version=a, fallback=b.model)
    actions.set_fallback(by=operator, version=b, fallback=c)
    assert "leads back" in refused(c, a.model, operator)
    assert "leads back" in refused(c, a, operator)


def test_a_fallback_has_to_be_ready(make_version: Make, operator: Actor) -> None:
    main, spare = make_version("main"), make_version("spare", state="registered")
    assert "nothing that is ready" in refused(main, spare, operator)
    assert "nothing that is ready" in refused(main, spare.model, operator)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"inputs": ROWS}, "other inputs"),
        ({"inputs": [{**TEXT[0], "datatype": "INT64"}]}, "other inputs"),
        ({"inputs": TEXT + ROWS}, "other inputs"),
        ({"outputs": embedding(768)}, "other outputs"),
        ({"outputs": [{**embedding(384)[0], "name": "logits"}]}, "other outputs"),
    ],
)
def test_what_takes_or_gives_something_else_is_refused(
    make_version: Make, operator: Actor, changed: dict[str, Any], why: str
) -> None:
    facts: dict[str, Any] = {"inputs": TEXT, "outputs": embedding(384)}
    main, spare = make_version("main", **facts), make_version("spare", **facts | changed)
    assert why in refused(main, spare, operator)
    assert why in refused(main, spare.model, operator)
    assert fallbacks.candidates(main) == ([], [])


def test_free_sizes_fit_fixed_ones(make_version: Make, operator: Actor) -> None:
    main = make_version("main", inputs=TEXT, outputs=embedding(384))
    spare = make_version("spare", inputs=TEXT, outputs=embedding(-1))
    actions.set_fallback(by=operator, version=main, fallback=spare)
    assert fallbacks.candidates(main) == ([spare.model], [spare])
    assert fallbacks.candidates(spare) == ([], []), "it would lead back"


def test_a_new_version_inherits_the_fallback(make_version: Make, operator: Actor) -> None:
    main, spare = make_version("main"), make_version("spare")
    actions.set_fallback(by=operator, version=main, fallback=spare.model)
    new = actions.register_version(by=operator, model=main.model, source=None, engine="echo")
    assert fallbacks.said(new) == "spare"


def test_a_fallback_is_not_archived_while_it_is_needed(make_version: Make, operator: Actor) -> None:
    main, spare = make_version("main"), make_version("spare")
    actions.set_fallback(by=operator, version=main, fallback=spare)
    with pytest.raises(Conflict, match="main/1"):
        actions.archive_version(by=operator, version=spare)
    actions.archive_version(by=operator, version=main)
    with pytest.raises(Conflict):
        actions.set_fallback(by=operator, version=main, fallback=None)
    actions.archive_version(by=operator, version=spare)


def test_a_deployed_version_without_replicas_is_still_answered_for(
    make_version: Make, operator: Actor
) -> None:
    main, spare = make_version("main"), make_version("spare")
    actions.set_fallback(by=operator, version=main, fallback=spare)
    deployment = deploy(by=operator, model=main.model, version=main, replicas=0)
    entry = ConfigEntry.objects.get(kind="version", key=main.pk)
    assert not entry.deleted and entry.body["fallback_version_id"] == spare.pk
    assert ConfigEntry.objects.get(kind="model", key="main").body["versions"] == {"1": main.pk}
    stop_deployment(by=operator, deployment=deployment)
    assert ConfigEntry.objects.get(kind="version", key=main.pk).deleted
