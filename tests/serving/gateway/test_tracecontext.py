"""W3C trace context: what is continued, what begins anew, and what is passed on."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway import tracecontext
from serving.gateway.tracecontext import parse_state, trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01".encode()
LINE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")


def test_a_trace_is_continued_by_a_span_of_our_own() -> None:
    trace = trace_of({b"traceparent": GOOD})
    assert trace is not None
    assert (trace.trace_id, trace.parent_id, trace.is_sampled) == (TRACE, SPAN, True)
    assert trace.span_id != SPAN
    assert LINE.fullmatch(trace.traceparent)


def test_without_a_header_there_is_no_trace() -> None:
    assert trace_of({b"tracestate": b"a=1"}) is None


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"00",
        GOOD[:-1],
        GOOD + b"0",
        GOOD + b"-extra",  # version 00 has four fields
        GOOD.upper(),
        b"ff" + GOOD[2:],
        GOOD.replace(TRACE.encode(), b"0" * 32),
        GOOD.replace(SPAN.encode(), b"0" * 16),
        GOOD.replace(b"-", b"_"),
        b"zz" + GOOD[2:],
        GOOD + b"\r\nx: y",
    ],
)
def test_a_malformed_parent_begins_a_new_trace(parent: bytes) -> None:
    trace = trace_of({b"traceparent": parent, b"tracestate": b"a=1"})
    assert trace is not None
    assert trace.trace_id != TRACE
    assert (trace.parent_id, trace.state, trace.is_sampled) == ("", "", False)


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    trace = trace_of({b"traceparent": b"cc" + GOOD[2:-2] + b"ff-more"})
    assert trace is not None
    assert (trace.trace_id, trace.flags) == (TRACE, 1)


def test_a_parent_sent_twice_is_malformed() -> None:
    raw = [(b"traceparent", GOOD), (b"traceparent", GOOD)]
    trace = trace_of(dict(raw), raw)
    assert trace is not None and trace.trace_id != TRACE


def test_several_tracestate_fields_are_one_list_in_order() -> None:
    raw = [(b"tracestate", b"a=1"), (b"traceparent", GOOD), (b"tracestate", b" b@t=2 ,, c=3")]
    trace = trace_of(dict(raw), raw)
    assert trace is not None and trace.state == "a=1,b@t=2,c=3"


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"a",
        b"a=1,a=2",
        b"A=1",
        b"a=1=2",
        b"a=\x01",
        b",".join(b"k%d=1" % n for n in range(33)),
        b"a=" + b"x" * 600,
    ],
)
def test_a_malformed_state_is_dropped_whole_and_the_trace_goes_on(state: bytes) -> None:
    assert parse_state(state) == ""
    trace = trace_of({b"traceparent": GOOD, b"tracestate": state})
    assert trace is not None and trace.trace_id == TRACE


@given(st.binary(max_size=200), st.binary(max_size=600))
def test_any_bytes_give_a_trace_with_a_proper_header(parent: bytes, state: bytes) -> None:
    trace = trace_of({b"traceparent": parent, b"tracestate": state})
    assert trace is not None
    assert LINE.fullmatch(trace.traceparent)
    assert trace.state.isprintable()


def test_new_traces_differ() -> None:
    assert len({tracecontext.begin().trace_id for _ in range(1000)}) == 1000
