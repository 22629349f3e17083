"""Writes closed slices, each once, as a whole; keeps those it could not write, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec
import structlog
from django.db import connection, transaction

from serving.control.telemetry.models import RESOLUTIONS_S
from serving.control.telemetry.partitions import make_day
from serving.telemetry.tally import Tally, decode_tally
from serving.telemetry.windows import SLICE_S, SeriesKey, Slice
from tenants.scoping import all_tenants

log = structlog.get_logger(__name__)

MAX_WAITING = 60
"""Slices kept while the database is away: ten minutes. Older ones become a gap."""
MAX_SERIES = 20_000
"""Written of one slice; of more, those that counted most."""

_CLAIM = """
INSERT INTO control_metricspan (resolution_s, start, covered_s) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING RETURNING 1
"""
_WRITE = """
INSERT INTO control_metricslice
    (resolution_s, start, tenant_id, model, version_id, endpoint, sla_class, answered, failed, tally)
SELECT %s, %s, * FROM unnest(
    %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bytea[])
ON CONFLICT DO NOTHING
"""


class SliceStore:
    """The controller's: `take` what closed, `step` writes it."""

    def __init__(self) -> None:
        self._waiting: deque[Slice] = deque()

    def take(self, closed: Iterable[Slice]) -> None:
        self._waiting.extend(closed)
        while len(self._waiting) > MAX_WAITING:
            lost = self._waiting.popleft()
            log.warning("telemetry.slice_lost", start=lost.start, reason="the database was away for too long")

    def step(self) -> int:
        """Write what waits, oldest first; returns how many. What fails stays, and the error is the loop's."""
        written = 0
        while self._waiting:
            written += write(SLICE_S, self._waiting[0])
            self._waiting.popleft()
        return written


def tally_of(raw: bytes) -> Tally:
    """A stored tally. One that cannot be read (another version wrote it) counts nothing, and says so."""
    try:
        return decode_tally(raw)
    except msgspec.DecodeError as error:
        log.warning("telemetry.slice_unreadable", error=str(error))
        return Tally()


def write(resolution_s: int, piece: Slice) -> bool:
    """Write a slice; False when it was there already: a second controller, or a second try, adds nothing."""
    assert resolution_s in RESOLUTIONS_S
    with transaction.atomic():
        # The span is the claim: of two writers at once the second waits, and finds it taken.
        if not write_span(resolution_s, piece.start, piece.covered_s):
            return False
        write_rows(resolution_s, piece.start, piece.tallies)
    return True


def write_span(resolution_s: int, start: int, covered_s: int) -> bool:
    """Say that a slice is written; False when that was said before."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [resolution_s, start, covered_s])
        return cursor.fetchone() is not None


def write_rows(resolution_s: int, start: int, tallies: Mapping[SeriesKey, bytes]) -> None:
    """Rows of a slice. Those that are there stay as they are; none counts before the slice's span is there."""
    if tallies:
        with all_tenants("slices of every tenant are written"), transaction.atomic():
            make_day(resolution_s, start)
            _insert(resolution_s, start, _most(tallies))


Row = tuple[SeriesKey, bytes, int, int]


def _most(tallies: Mapping[SeriesKey, bytes]) -> list[Row]:
    rows = [_row(key, raw) for key, raw in tallies.items()]
    if len(rows) > MAX_SERIES:
        log.warning("telemetry.series_left_out", series=len(rows) - MAX_SERIES)
        rows = sorted(rows, key=lambda row: -(row[2] + row[3]))[:MAX_SERIES]
    return rows


def _row(key: SeriesKey, raw: bytes) -> Row:
    tally = tally_of(raw)
    return key, raw, tally.answered, tally.ended - tally.answered


def _insert(resolution_s: int, start: int, rows: list[Row]) -> None:
    labels = [list(column) for column in zip(*(row[0] for row in rows), strict=True)]
    raws, answered, failed = ([row[place] for row in rows] for place in (1, 2, 3))
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, [resolution_s, start, *labels, answered, failed, raws])
