"""What every key used, per minute: added up here, handed to the report outbox every two seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from serving.contract import SlaClass, UsageReport, UsageRow
from serving.gateway.routing import Lane

_US_PER_HOUR = 3_600_000_000
MAX_RESTS = 100_000


class Account(NamedTuple):
    """Whose usage a row is."""

    tenant_id: str
    key_id: str
    model: str
    version_id: str
    sla_class: SlaClass


class Used:
    """Sums of one minute and account since the last flush."""

    __slots__ = ("cancelled", "device_us", "failed", "price", "requests", "rows", "tokens")

    def __init__(self, price_micro_per_device_hour: int) -> None:
        self.requests = self.failed = self.cancelled = 0
        self.rows = self.tokens = self.device_us = 0
        self.price = price_micro_per_device_hour


class Usage:
    """`put` takes reports over; it must not block (`ReportOutbox.put`)."""

    def __init__(self, put: Callable[[UsageReport], None]) -> None:
        self._put = put
        self._open: dict[tuple[int, Account], Used] = {}
        self._rests: dict[Account, int] = {}
        self._near: dict[tuple[Lane, str, int], Used] = {}
        """The same sums where they are found in a third of the time; until the next flush."""

    def of(self, lane: Lane, key_id: str, now: float) -> Used:
        """The sums to add to. `now` is Unix time."""
        minute = int(now) // 60 * 60
        used = self._near.get((lane, key_id, minute))
        if used is None:
            used = self._near[lane, key_id, minute] = self._find(lane, key_id, minute)
        return used

    def _find(self, lane: Lane, key_id: str, minute: int) -> Used:
        account = Account(lane.tenant_id, key_id, lane.model, lane.version.id, lane.profile.sla_class)
        key = (minute, account)
        used = self._open.get(key)
        if used is None:
            used = self._open[key] = Used(lane.version.price_micro_per_device_hour)
        return used

    def flush(self) -> None:
        """Hand over everything since the last flush."""
        if not self._open:
            return
        taken, self._open = self._open, {}
        self._near.clear()
        self._put(UsageReport(rows=tuple(self._row(*key, used) for key, used in taken.items())))
        if len(self._rests) > MAX_RESTS:
            self._rests.clear()  # each is worth less than a millionth of the currency

    def _row(self, minute: int, account: Account, used: Used) -> UsageRow:
        return UsageRow(
            minute=minute,
            tenant_id=account.tenant_id,
            key_id=account.key_id,
            model=account.model,
            version_id=account.version_id,
            sla_class=account.sla_class,
            requests=used.requests,
            failed=used.failed,
            cancelled=used.cancelled,
            rows=used.rows,
            tokens=used.tokens,
            device_us=used.device_us,
            cost_micro=self._cost(account, used),
        )

    def _cost(self, account: Account, used: Used) -> int:
        """Micro-units; the rest below one goes into the account's next row, so that sums stay exact."""
        rest = self._rests.get(account, 0)
        cost, self._rests[account] = divmod(used.device_us * used.price + rest, _US_PER_HOUR)
        return cost
