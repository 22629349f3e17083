"""When a delivery is due, and what follows from its answer; in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.trail.webhooks.schedule import (
    MAX_ATTEMPTS,
    Answer,
    Delivered,
    GiveUp,
    Pause,
    Retry,
    delay,
    is_due,
    verdict,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@given(status=st.integers(100, 599), failed=st.integers(0, MAX_ATTEMPTS - 1), share=st.floats(0, 1))
def test_every_answer_leads_somewhere(status: int, failed: int, share: float) -> None:
    what = verdict(Answer(status), failed, NOW, share)
    if 200 <= status < 300:
        assert what == Delivered()
    elif status == 410:
        assert what == Pause()
    elif failed + 1 == MAX_ATTEMPTS:
        assert what == GiveUp()
    else:
        assert isinstance(what, Retry) and what.at > NOW


def test_no_answer_is_a_failure_that_is_tried_again() -> None:
    assert verdict(Answer(None, "It did not answer in time."), 0, NOW, 1.0) == Retry(NOW + 5 * SECOND)


def test_a_redirect_is_no_delivery() -> None:
    assert isinstance(verdict(Answer(302), 0, NOW, 0.5), Retry)


@pytest.mark.parametrize("failed", range(1, MAX_ATTEMPTS))
def test_waits_grow_fourfold_and_half_of_each_is_drawn(failed: int) -> None:
    assert delay(failed, 1.0) == 2 * delay(failed, 0.0) == 5 * SECOND * 4 ** (failed - 1)


def test_an_event_is_given_up_within_a_working_day() -> None:
    longest = sum((delay(failed, 1.0) for failed in range(1, MAX_ATTEMPTS)), timedelta())
    assert timedelta(hours=7) < longest < timedelta(hours=8)


@pytest.mark.parametrize(
    ("paused", "next_in", "lease_in", "due"),
    [
        (False, 0, None, True),
        (False, -1, -1, True),
        (False, -1, 0, True),
        (False, -1, 1, False),
        (False, 1, None, False),
        (True, -1, None, False),
    ],
)
def test_one_is_due_when_no_pause_no_back_off_and_nobody_else_holds_it(
    paused: bool, next_in: int, lease_in: int | None, due: bool
) -> None:
    leased_until = None if lease_in is None else NOW + lease_in * SECOND
    found = is_due(
        is_paused=paused, next_attempt_at=NOW + next_in * SECOND, leased_until=leased_until, now=NOW
    )
    assert found is due
