"""What people want of the fleet takes effect at once, and is published with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from serving.contract import DeploymentEntry, ModelEntry, ReplicaReport, VersionEntry, decode_config
from serving.control.catalog.models import Version
from serving.control.fleet import hosts, placing, replicas
from serving.control.fleet.actions import deploy, scale, stop_deployment, switch_version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.seam_tables import ConfigEntry
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed
from tenants.models import AuditEvent
from tenants.scoping import all_tenants

pytestmark = pytest.mark.django_db

MakeVersion = Callable[..., Version]
MakeHost = Callable[..., Host]


def entry(kind: str, key: str) -> object:
    row = ConfigEntry.objects.filter(kind=kind, key=key).first()
    return None if row is None or row.deleted else decode_config(json.dumps(row.body))


def model_entry(name: str = "minilm") -> ModelEntry:
    found = entry("model", name)
    assert isinstance(found, ModelEntry)
    return found


def specs(deployment: Deployment) -> tuple[str, ...]:
    found = entry("deployment", deployment.pk)
    assert isinstance(found, DeploymentEntry)
    return tuple(spec.id for spec in found.replicas)


def report(replica: Replica, state: str, *, epoch: int = 1, reason: str = "") -> bool:
    body = ReplicaReport(
        replica_id=replica.pk,
        version_id=replica.version_id,
        host=replica.host.name,
        epoch=epoch,
        state=state,  # type: ignore[arg-type]
        reason=reason,
        pid=7,
        memory_bytes=99,
        load_s=1.5,
    )
    return replicas.record(body, timezone.now())


def wanted(deployment: Deployment) -> list[Replica]:
    return list(deployment.replicas.filter(is_wanted=True).select_related("host").order_by("slot"))


def test_a_deploy_places_and_publishes_at_once(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host("alpha")
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version, replicas=2, threads=3)
    placed = wanted(deployment)
    assert [replica.slot for replica in placed] == [1, 2]
    assert placed[0].address == f"unix:/run/alpha/r/{placed[0].pk}.sock"
    assert specs(deployment) == tuple(replica.pk for replica in placed)
    assert isinstance(entry("version", version.pk), VersionEntry)
    assert model_entry().versions == {"1": version.pk}
    assert [route.version_id for route in model_entry().routes] == [version.pk]
    assert not deployment.is_ready
    with all_tenants("test"):
        assert AuditEvent.objects.filter(action="deployment.created", target_id=deployment.pk).count() == 1


def test_threads_are_those_the_version_was_measured_with_unless_told_otherwise(
    operator: Actor, make_version: MakeVersion
) -> None:
    version = make_version(options={"threads": 3})
    deployment = deploy(by=operator, model=version.model, version=version)
    assert deployment.threads == 3
    stop_deployment(by=operator, deployment=deployment)
    assert deploy(by=operator, model=version.model, version=version, threads=2).threads == 2


def test_without_a_host_the_deployment_says_why_and_is_placed_when_one_appears(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    assert deployment.state_reason == "No host is connected: start an agent."
    make_host()
    placing.step(timezone.now())
    deployment.refresh_from_db()
    assert deployment.state_reason == "" and len(wanted(deployment)) == 1


@pytest.mark.parametrize("state", ["registered", "validating", "failed", "archived"])
def test_only_ready_versions_can_be_deployed(operator: Actor, make_version: MakeVersion, state: str) -> None:
    version = make_version(state=state)
    with pytest.raises(Conflict):
        deploy(by=operator, model=version.model, version=version)


def test_a_model_is_deployed_once(operator: Actor, make_version: MakeVersion) -> None:
    version = make_version()
    deploy(by=operator, model=version.model, version=version)
    with pytest.raises(Conflict):
        deploy(by=operator, model=version.model, version=version)


def test_another_models_version_is_refused(operator: Actor, make_version: MakeVersion) -> None:
    with pytest.raises(Invalid) as caught:
        deploy(by=operator, model=make_version("a").model, version=make_version("b"))
    assert "version" in caught.value.errors


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"])
def test_an_unknown_device_is_refused(operator: Actor, make_version: MakeVersion, device: str) -> None:
    version = make_version()
    with pytest.raises(Invalid) as caught:
        deploy(by=operator, model=version.model, version=version, device=device)
    assert "device" in caught.value.errors


@pytest.mark.parametrize("count", [-1, 257])
def test_an_absurd_number_of_replicas_is_refused(
    operator: Actor, make_version: MakeVersion, count: int
) -> None:
    version = make_version()
    with pytest.raises(Invalid):
        deploy(by=operator, model=version.model, version=version, replicas=count)


def test_only_operators_touch_the_fleet(make_version: MakeVersion) -> None:
    version = make_version()
    somebody = Actor(type="user", id="1", name="somebody")
    with pytest.raises(NotAllowed):
        deploy(by=somebody, model=version.model, version=version)


def test_scaling_down_drains_and_withdraws_from_gateways(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version, replicas=2)
    first, second = wanted(deployment)
    for replica in (first, second):
        report(replica, "ready")
    deployment = scale(by=operator, deployment=deployment, replicas=1)
    second.refresh_from_db()
    assert second.state == "draining" and not second.is_wanted
    assert specs(deployment) == (first.pk,)
    assert not report(second, "ready"), "a late heartbeat does not undo the drain"
    assert report(second, "stopped")


def test_scaling_to_zero_keeps_the_deployment(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    scale(by=operator, deployment=deployment, replicas=0)
    assert specs(deployment) == ()
    assert model_entry().versions == {"1": version.pk}, "known, and not ready"
    assert [route.version_id for route in model_entry().routes] == [version.pk]


def test_a_switch_moves_traffic_when_the_new_version_is_ready_and_then_drains_the_old(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    old = make_version()
    new = make_version()
    deployment = deploy(by=operator, model=old.model, version=old)
    (first,) = wanted(deployment)
    report(first, "ready")
    deployment = switch_version(by=operator, deployment=deployment, version=new)
    (_, second) = wanted(deployment)
    assert model_entry().versions == {"1": old.pk, "2": new.pk}
    assert [route.version_id for route in model_entry().routes] == [old.pk]
    report(second, "loading")
    assert [route.version_id for route in model_entry().routes] == [old.pk]
    report(second, "ready")
    assert [route.version_id for route in model_entry().routes] == [new.pk]
    placing.step(timezone.now())
    assert specs(deployment) == (second.pk,)
    assert model_entry().versions == {"2": new.pk}
    assert entry("version", old.pk) is None
    deployment.refresh_from_db()
    assert deployment.is_ready


def test_a_new_version_that_fails_leaves_traffic_where_it_was(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    old, new = make_version(), make_version()
    deployment = deploy(by=operator, model=old.model, version=old)
    (first,) = wanted(deployment)
    report(first, "ready")
    deployment = switch_version(by=operator, deployment=deployment, version=new)
    second = wanted(deployment)[1]
    report(second, "failed", reason="out of memory")
    placing.step(timezone.now())
    assert [route.version_id for route in model_entry().routes] == [old.pk]
    assert len(specs(deployment)) == 2


def test_stopping_retracts_everything(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    stop_deployment(by=operator, deployment=deployment)
    assert entry("deployment", deployment.pk) is None
    assert entry("version", version.pk) is None
    assert model_entry().routes == ()
    assert not wanted(deployment)
    with pytest.raises(Conflict):
        scale(by=operator, deployment=deployment, replicas=2)
    again = deploy(by=operator, model=version.model, version=version)
    assert len(wanted(again)) == 1


def test_reports_of_an_older_epoch_are_ignored(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    (replica,) = wanted(deployment)
    assert report(replica, "ready", epoch=5)
    assert not report(replica, "failed", epoch=4)
    assert report(replica, "starting", epoch=6), "a new epoch may begin anywhere"
    assert report(replica, "warming", epoch=6)
    assert not report(replica, "loading", epoch=6), "within an epoch states move forward"
    assert report(replica, "pending", epoch=6), "until the process ends"
    replica.refresh_from_db()
    assert (replica.state, replica.epoch, replica.pid, replica.memory_bytes) == ("pending", 6, 7, 99)
    assert replica.ready_at is not None


def test_reports_of_unknown_replicas_or_from_another_host_are_ignored(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    (replica,) = wanted(deploy(by=operator, model=version.model, version=version))
    stranger = ReplicaReport(replica_id=replica.pk, version_id="v", host="beta", epoch=9, state="failed")
    assert not replicas.record(stranger, timezone.now())
    unknown = ReplicaReport(replica_id="rep_x", version_id="v", host="alpha", epoch=9, state="failed")
    assert not replicas.record(unknown, timezone.now())


def test_a_silent_hosts_replicas_are_failed_until_it_is_heard_again(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    (replica,) = wanted(deployment)
    report(replica, "ready")
    later = timezone.now() + timedelta(seconds=20)
    assert hosts.any_live_host(later) is None
    assert hosts.step(later) == 1
    replica.refresh_from_db()
    assert (replica.state, replica.reason) == ("failed", "host silent")
    placing.step(later)
    assert specs(deployment) == (replica.pk,), "its agent may come back: the replica stays wanted"
    make_host(at=later)
    assert report(replica, "ready"), "the same process was there all the time"
    replica.refresh_from_db()
    assert (replica.state, replica.reason) == ("ready", "")


def test_an_unwanted_replica_whose_agent_says_nothing_more_is_buried(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    (replica,) = wanted(deployment)
    scale(by=operator, deployment=deployment, replicas=0)
    later = timezone.now() + timedelta(seconds=121)
    make_host(at=later)
    assert hosts.step(later) == 1
    replica.refresh_from_db()
    assert replica.state == "stopped"


@pytest.mark.django_db(transaction=True)
def test_two_deploys_at_once_make_one_deployment(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host()
    version = make_version()
    outcomes: list[str] = []

    def run() -> None:
        try:
            deploy(by=operator, model=version.model, version=version, replicas=2)
            outcomes.append("deployed")
        except Conflict:
            outcomes.append("conflict")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 3 + ["deployed"]
    assert Replica.objects.filter(is_wanted=True).count() == 2


@pytest.mark.django_db(transaction=True)
def test_placement_reports_and_scaling_at_once_neither_deadlock_nor_duplicate(
    operator: Actor, make_version: MakeVersion, make_host: MakeHost
) -> None:
    make_host(memory_bytes=1000 * 2**30)  # replicas that still drain hold theirs
    made = [make_version(name) for name in ("a", "b", "c")]
    deployments = [deploy(by=operator, model=v.model, version=v, replicas=2) for v in made]
    failures: list[BaseException] = []

    def repeat(work: Callable[[int], object]) -> threading.Thread:
        def run() -> None:
            try:
                for number in range(5):
                    work(number)
            except BaseException as error:
                failures.append(error)
            finally:
                connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def talk(number: int) -> None:
        for replica in Replica.objects.select_related("host").order_by("?"):
            report(replica, "ready" if number % 2 else "failed", epoch=number)

    threads = [
        repeat(lambda number: placing.step(timezone.now())),
        repeat(lambda number: scale(by=operator, deployment=deployments[0], replicas=1 + number % 3)),
        repeat(lambda number: scale(by=operator, deployment=deployments[1], replicas=1 + (number + 1) % 3)),
        repeat(talk),
    ]
    for thread in threads:
        thread.join()
    assert not failures
    placing.step(timezone.now())
    for deployment in deployments:
        deployment.refresh_from_db()
        assert len(wanted(deployment)) == deployment.replicas_wanted
