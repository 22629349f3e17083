"""Spans of time in addresses."""

from __future__ import annotations

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from console.pages.spans import DEFAULT, MAX_SPAN_S, MIN_SPAN_S, span_of

NOW = 1_764_547_200.0


def asked(query: str) -> tuple[str, float, float]:
    span = span_of(QueryDict(query), NOW)
    return span.name, span.since - NOW, span.until - NOW


def test_a_named_span_ends_now() -> None:
    assert asked("range=6h") == ("6h", -21_600, 0)


def test_two_moments_are_taken_as_they_are_and_end_now_at_the_latest() -> None:
    assert asked(f"since={int(NOW) - 600}&until={int(NOW) - 300}") == ("", -600, -300)
    assert asked(f"since={int(NOW) - 600}&until={int(NOW) + 300}") == ("", -600, 0)


def test_local_times_are_those_of_the_pages_zone() -> None:
    assert asked("since=2025-11-30T23:00&until=2025-12-01T00:00") == ("", -3600, 0)


@pytest.mark.parametrize(
    "query", ["", "range=year", "since=1&until=2", "since=x&until=y", f"since={int(NOW)}&until=5"]
)
def test_what_is_no_span_is_the_default_one(query: str) -> None:
    assert asked(query)[0] == DEFAULT


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=8))
def test_no_address_leads_beyond_the_bounds(since: str, until: str, name: str) -> None:
    query = QueryDict(mutable=True)
    query.update({"since": since, "until": until, "range": name})
    span = span_of(query, NOW)
    assert MIN_SPAN_S <= span.seconds <= MAX_SPAN_S and span.until <= NOW
