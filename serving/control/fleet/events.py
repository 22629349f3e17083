"""What happened in replicas, as their agents report it: part of the audit trail, where people look."""

from __future__ import annotations

import structlog
from django.db import transaction

from serving.contract import EventReport
from serving.control.fleet.models import Replica
from tenants.actors import Actor
from tenants.audit import record

log = structlog.get_logger(__name__)

_AGENT = Actor.system("agent")


@transaction.atomic
def record_event(report: EventReport) -> bool:
    """Write one event down; False when it is of a replica we do not know or of another host's."""
    replica = Replica.objects.select_related("host").filter(pk=report.replica_id).first()
    if replica is None or replica.host.name != report.host:
        log.warning("replica.event_ignored", replica=report.replica_id, host=report.host)
        return False
    after = {"host": report.host, "epoch": report.epoch, **report.numbers}
    record(by=_AGENT, action=f"replica.{report.event}", target=replica, after=after, outcome="failure")
    return True
