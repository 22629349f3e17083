"""What rules are read from: windows of requests, and facts of the control plane.

Facts are read under `all_tenants`, each at most once in a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import structlog
from django.db.models import Max

from serving.control.alerts.facts import Fact
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.quotas.accounts import Accounts, AccountsAway
from serving.control.quotas.models import BUDGETS, Quota
from serving.control.quotas.watching import span_of
from serving.telemetry.windows import Window, Windows
from tenants.models import ApiKey

log = structlog.get_logger(__name__)

KEYS_WITHIN = timedelta(days=30)
RESTARTS_WITHIN_S = 600.0
START_SLACK_S = 15.0
_STARTING = ("starting", "loading", "warming")


class Sources:
    """Evidence for the engine (`rules.Evidence`); `begin` starts a step."""

    def __init__(self, windows: Windows, accounts: Callable[[], Accounts] = Accounts) -> None:
        self._windows = windows
        self._accounts = accounts
        self._restarts: dict[str, deque[tuple[float, int]]] = {}
        self._read: dict[str, list[Fact] | None] = {}
        self._now = datetime.min

    def begin(self, now: datetime) -> None:
        self._now, self._read = now, {}

    # ------------------------------------------------------------ what rules read

    def windows(self, window_s: int, by: tuple[str, ...]) -> list[Window] | None:
        return self._windows.read(window_s, self._now.timestamp(), by)

    def facts(self, name: str) -> list[Fact] | None:
        if name not in self._read:
            self._read[name] = self._readers[name](self)
        return self._read[name]

    def _budgets(self) -> list[Fact] | None:
        budgets = list(Quota.objects.filter(window__in=BUDGETS).select_related("tenant", "key", "model"))
        try:
            standings = self._accounts().standings(budgets)
        except AccountsAway as error:
            log.warning("alerts.budgets_unread", error=str(error))
            return None
        out = []
        for quota in budgets:
            standing = standings.get(quota.pk)
            is_present = standing is not None and standing.window >= span_of(quota, self._now).start_s
            used = standing.used if standing is not None and is_present else 0
            labels = {"tenant_id": quota.tenant_id, "quota": str(quota)[:200], "quota_id": quota.pk}
            out.append(Fact(labels, used / quota.limit))
        return out

    def _keys(self) -> list[Fact]:
        keys = ApiKey.objects.filter(
            expires_at__gt=self._now,
            expires_at__lte=self._now + KEYS_WITHIN,
            revoked_at__isnull=True,
            replaced_by__isnull=True,
        )
        return [
            Fact(
                {"tenant_id": key.tenant_id, "key": key.name, "key_id": key.pk},
                (key.expires_at - self._now).total_seconds(),
            )
            for key in keys
            if key.expires_at is not None
        ]

    def _ready(self) -> list[Fact]:
        return [Fact({"model": deployment.model.name}, deployment.ready_count) for deployment in _wanted()]

    def _missing(self) -> list[Fact]:
        return [Fact({"model": d.model.name}, max(0, d.replicas_wanted - d.ready_count)) for d in _wanted()]

    def _restarted(self) -> list[Fact]:
        now_s = self._now.timestamp()
        rows = Replica.objects.filter(is_wanted=True).values_list("pk", "deployment__model__name", "restarts")
        out = []
        for replica_id, model, restarts in rows:
            seen = self._restarts.setdefault(replica_id, deque())
            if not seen or seen[-1][1] != restarts:
                seen.append((now_s, restarts))
            while len(seen) > 1 and seen[1][0] <= now_s - RESTARTS_WITHIN_S:
                seen.popleft()
            out.append(Fact({"model": model, "replica_id": replica_id}, restarts - seen[0][1]))
        self._restarts = {row[0]: self._restarts[row[0]] for row in rows}
        return out

    def _cold_starts(self) -> list[Fact]:
        """Twice what was measured when the version was validated, and some seconds, is late."""
        rows = Replica.objects.filter(is_wanted=True, state__in=_STARTING).select_related(
            "deployment__model", "version"
        )
        out = []
        for replica in rows:
            if replica.version.load_s is None:
                continue
            promised_s = 2 * (replica.version.load_s + (replica.version.warm_up_s or 0.0)) + START_SLACK_S
            took_s = (self._now - replica.state_changed_at).total_seconds()
            labels = {"model": replica.deployment.model.name, "replica_id": replica.pk}
            out.append(Fact(labels, took_s - promised_s))
        return out

    def _hosts(self) -> list[Fact]:
        hosts = Host.objects.filter(replicas__is_wanted=True).values("name").annotate(at=Max("last_seen_at"))
        return [Fact({"host": h["name"]}, (self._now - h["at"]).total_seconds()) for h in hosts]

    def _gateways(self) -> list[Fact]:
        """Where nothing is to be served, no gateway is missed."""
        if not Deployment.objects.filter(state="active", replicas_wanted__gte=1).exists():
            return []
        everything = self._windows.read(60, self._now.timestamp(), ())
        return [Fact({}, min(1.0, everything[0].covered_s / 60))]

    def _none_yet(self) -> list[Fact]:
        """Nothing here makes such facts yet."""
        return []

    _readers = {
        "budget_used_share": _budgets,
        "key_expires_in_s": _keys,
        "replicas_ready": _ready,
        "replicas_missing": _missing,
        "replica_restarts": _restarted,
        "cold_start_late_s": _cold_starts,
        "host_silent_s": _hosts,
        "gateway_frames_covered_share": _gateways,
        "certificate_expires_in_s": _none_yet,
        "rollout_failed": _none_yet,
    }


def _wanted() -> Iterable[Deployment]:
    rows = Deployment.objects.filter(state="active", replicas_wanted__gte=1)
    return rows.select_related("model").prefetch_related("replicas")
