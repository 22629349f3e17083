from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.scheduling.queues import EarliestFirst, FirstComeFirstServed
from tests.serving.scheduling.works import work


def take_all(queue: EarliestFirst | FirstComeFirstServed) -> list[int]:
    out = []
    while (taken := queue.take(lambda _: True)) is not None:
        out.append(taken.id)
    return out


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=300))
def test_the_earliest_come_first_and_removed_ones_never(entries: list[tuple[int, bool]]) -> None:
    queue, kept = EarliestFirst(), []
    works = [(key, work(), is_removed) for key, is_removed in entries]
    for key, each, _ in works:
        queue.push(float(key), each)
    for key, each, is_removed in works:
        if is_removed:
            queue.remove(each.id)
        else:
            kept.append((key, each.id))
    assert len(queue) == len(kept)
    assert take_all(queue) == [work_id for _, work_id in sorted(kept)]


def test_heads_that_do_not_fit_let_a_few_others_by_but_not_all() -> None:
    queue = FirstComeFirstServed(lookahead=3)
    large = [work(tokens=900) for _ in range(2)]
    small = [work(tokens=1) for _ in range(2)]
    for each in (large[0], small[0], large[1], *[work(tokens=900) for _ in range(5)], small[1]):
        queue.push(each)
    assert queue.take(lambda each: each.tokens < 10) is small[0]
    assert queue.take(lambda each: each.tokens < 10) is None
    assert queue.take(lambda _: True) is large[0]


def test_a_queue_that_lives_on_cancellations_does_not_grow() -> None:
    queue, fifo = EarliestFirst(), FirstComeFirstServed(lookahead=8)
    for _ in range(5000):
        each = work()
        queue.push(1e9, each)
        fifo.push(each)
        queue.remove(each.id)
        fifo.remove(each.id)
    assert len(queue._heap) <= 128
    assert len(fifo._queue) <= 128
