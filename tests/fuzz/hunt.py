"""How fuzzers run: some hundred examples in the suite, and for `TIDEGATE_FUZZ_S` seconds each by `make fuzz`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FUZZ_S = float(os.environ.get("TIDEGATE_FUZZ_S") or 0)
HANG_S = 30
"""An example that takes longer hangs: the slowest take some milliseconds."""


class Hang(BaseException):
    """Not an `Exception`: nothing that is fuzzed may swallow it."""


def explore(check: Callable[..., None], *strategies: st.SearchStrategy[Any], examples: int = 150) -> None:
    """Call `check` with values of the strategies; failures are shrunk as usual."""

    def example(values: tuple[Any, ...]) -> None:
        with watched():
            check(*values)

    quiet = settings(
        max_examples=2_000 if FUZZ_S else examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    end = time.monotonic() + FUZZ_S
    while True:
        quiet(given(st.tuples(*strategies))(example))()
        if time.monotonic() >= end:
            return


def hunt(
    *strategies: st.SearchStrategy[Any], examples: int = 150
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Makes a test of a function that takes one value of each strategy."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            explore(check, *strategies, examples=examples)

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        return test

    return decorate


@contextmanager
def watched() -> Iterator[None]:
    """Raises `Hang` in whatever runs for `HANG_S` seconds."""

    def alarm(number: int, frame: FrameType | None) -> None:
        raise Hang(f"still running after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
