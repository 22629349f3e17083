"""What agents report of replicas, taken over in order: epochs never go back, states follow the table."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import structlog
from django.db import transaction

from serving.contract import ReplicaReport, ReplicaState
from serving.control import publish
from serving.control.fleet.hosts import SILENT_REASON
from serving.control.fleet.models import Replica
from serving.control.fleet.states import may_follow

log = structlog.get_logger(__name__)


@transaction.atomic
def record(report: ReplicaReport, received_at: datetime) -> bool:
    """Apply one report; False when it is of an older epoch, out of order, or of a replica we do not know."""
    replica = (
        Replica.objects.select_for_update(of=("self",))
        .select_related("deployment__model", "host")
        .filter(pk=report.replica_id)
        .first()
    )
    if replica is None or not _is_news(replica, report):
        return False
    was_ready = replica.state == "ready"
    _take_over(replica, report, received_at)
    replica.save()
    if was_ready != (replica.state == "ready"):
        publish.model(replica.deployment.model)  # routes follow ready replicas
    return True


def _is_news(replica: Replica, report: ReplicaReport) -> bool:
    if report.host != replica.host.name or report.epoch < replica.epoch:
        log.warning("replica.report_ignored", replica=replica.pk, host=report.host, epoch=report.epoch)
        return False
    # "Host silent" was our assumption, not an observation: whatever the agent says replaces it.
    is_same_epoch = report.epoch == replica.epoch and replica.reason != SILENT_REASON
    return may_follow(cast(ReplicaState, replica.state), report.state, is_same_epoch=is_same_epoch)


def _take_over(replica: Replica, report: ReplicaReport, received_at: datetime) -> None:
    if report.state != replica.state:
        replica.state_changed_at = received_at
        if report.state == "ready":
            replica.ready_at = received_at
    replica.state = report.state
    replica.reason = report.reason
    replica.epoch = report.epoch
    replica.pid = report.pid
    replica.restarts = report.restarts
    replica.memory_bytes = report.memory_bytes if report.memory_bytes is not None else replica.memory_bytes
    replica.load_s = report.load_s if report.load_s is not None else replica.load_s
    replica.reported_at = received_at
