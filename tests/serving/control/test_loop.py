"""The controller's loop: one leads, one step's failure is its own, and news are taken in at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from django.db import connection, connections

from serving.control.leadership import Leadership
from serving.control.loop import Controller, Step, control_steps
from tests.serving.control.test_reports import counted, send, usage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Iterator[Callable[[Controller], threading.Thread]]:
    """Runs controllers in threads and stops them at the end."""
    running: list[tuple[Controller, threading.Thread]] = []

    def start(controller: Controller) -> threading.Thread:
        thread = threading.Thread(target=controller.run_forever)
        thread.start()
        running.append((controller, thread))
        return thread

    yield start
    for controller, _ in running:
        controller.stop.set()
    for _, thread in running:
        thread.join(10)
        assert not thread.is_alive()
    connections.close_all()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_single_cycle_runs_every_step() -> None:
    send(usage())
    controller = Controller()
    assert controller.run_single_cycle() == []
    assert counted() == 1


def test_a_failing_step_does_not_stop_the_others() -> None:
    ran: list[str] = []

    def fail(now: datetime) -> None:
        raise ZeroDivisionError

    steps = [Step("broken", fail), Step("fine", lambda now: ran.append("fine"))]
    controller = Controller(steps=steps)
    assert controller.run_single_cycle() == ["broken"]
    assert controller.run_single_cycle() == ["broken"]
    assert ran == ["fine", "fine"] and steps[0].failures == 2


def test_reports_are_taken_in_while_the_loop_runs(run: Callable[[Controller], threading.Thread]) -> None:
    run(Controller())
    send(usage())
    until(lambda: counted() == 1)


def test_only_one_controller_leads_and_the_next_takes_over(
    run: Callable[[Controller], threading.Thread],
) -> None:
    turns = {"first": 0, "second": 0}

    def counting(name: str) -> Controller:
        def step(now: datetime) -> None:
            turns[name] += 1

        return Controller(steps=[Step("count", step, every_s=0.0)])

    first = counting("first")
    thread = run(first)
    until(lambda: turns["first"] > 0)
    run(counting("second"))
    until(lambda: turns["first"] > 3)
    assert turns["second"] == 0
    first.stop.set()
    thread.join(10)
    until(lambda: turns["second"] > 0)


def test_a_leader_whose_connection_is_cut_leads_again(run: Callable[[Controller], threading.Thread]) -> None:
    turns: list[int] = []
    leadership = Leadership(name="leader-under-test")
    step = Step("count", lambda now: turns.append(1), every_s=0.0)
    run(Controller(steps=[step], leadership=leadership))
    until(lambda: len(turns) > 0)
    with connection.as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leader-under-test'"
        )
    seen = len(turns)
    until(lambda: len(turns) > seen + 3)


def test_steps_recover_when_every_connection_of_theirs_is_cut(
    run: Callable[[Controller], threading.Thread],
) -> None:
    run(Controller(steps=control_steps()))
    with connection.as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    send(usage())
    until(lambda: counted() == 1)
