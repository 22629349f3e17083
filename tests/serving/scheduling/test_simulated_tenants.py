"""What tenants get, over virtual minutes, on a device whose times differ from the prediction by ±7 %."""

from __future__ import annotations

import random

import pytest

from serving.contract import CostCurve
from serving.scheduling.policy import Policy
from serving.scheduling.simulate import Traffic
from tests.serving.scheduling.works import bulk, interactive, mixed, play, short


@pytest.mark.parametrize("rate", [10, 40])
@pytest.mark.parametrize("lengths", [short, mixed])
def test_an_interactive_tenant_keeps_its_target_beside_bulk_work(rate: int, lengths) -> None:
    rng = random.Random(1)
    simulation = play([interactive("chat", rate, rng), bulk("archive", 128, lengths(rng))], rng, seconds=60)
    chat, archive = simulation.tallies
    assert chat.kept_share >= 0.99
    assert chat.percentile_s(0.95) < 0.02
    assert chat.percentile_s(0.99) < 0.03
    assert archive.device_s > 0.7 * simulation.busy_s
    assert simulation.idle_while_waiting_s == 0.0


def test_bulk_beside_interactive_keeps_nine_tenths_of_the_quiet_throughput() -> None:
    rng = random.Random(2)
    alone = play([bulk("archive", 128, short(rng))], rng, seconds=60).tallies[0].answered
    beside = play([interactive("chat", 10, rng), bulk("archive", 128, short(rng))], rng, seconds=60)
    assert sum(tally.answered for tally in beside.tallies) >= 0.9 * alone


def test_an_engine_that_cannot_pause_still_keeps_the_target() -> None:
    rng = random.Random(3)
    simulation = play(
        [interactive("chat", 10, rng), bulk("archive", 128, short(rng))], rng, seconds=60, can_yield=False
    )
    assert simulation.tallies[0].kept_share >= 0.99
    assert sum(tally.answered for tally in simulation.tallies) / 60 >= 0.85 * 353


def test_weights_divide_the_device_within_three_points() -> None:
    rng = random.Random(4)
    traffics = [bulk(name, 128, short(rng), weight=weight) for name, weight in (("a", 1), ("b", 2), ("c", 4))]
    simulation = play(traffics, rng, seconds=60)
    for tally, expected in zip(simulation.tallies, (1 / 7, 2 / 7, 4 / 7), strict=True):
        assert tally.device_s / simulation.busy_s == pytest.approx(expected, abs=0.03)


def test_weights_count_device_time_not_requests() -> None:
    rng = random.Random(5)
    simulation = play([bulk("long", 128, mixed(rng)), bulk("short", 128, short(rng))], rng, seconds=60)
    for tally in simulation.tallies:
        assert tally.device_s / simulation.busy_s == pytest.approx(0.5, abs=0.03)


def test_one_tenant_in_overload_leaves_the_others_their_targets() -> None:
    rng = random.Random(6)
    loads = [interactive("greedy", 450, rng), interactive("calm", 10, rng), interactive("mild", 10, rng)]
    greedy, calm, mild = play(loads, rng, seconds=60).tallies
    assert calm.kept_share >= 0.98
    assert mild.kept_share >= 0.98
    assert greedy.refused > 0.8 * (greedy.refused + greedy.expired)


def test_what_is_answered_under_overload_is_answered_by_the_deadline() -> None:
    rng = random.Random(7)
    tally = play([interactive("only", 500, rng)], rng, seconds=30).tallies[0]
    assert tally.answered / 30 > 300
    assert tally.percentile_s(0.95) <= 0.21


def test_batch_work_is_not_starved_by_standard_work() -> None:
    rng = random.Random(8)
    loads = [Traffic("busy", "standard", short(rng), outstanding=200), bulk("archive", 64, short(rng))]
    simulation = play(loads, rng, seconds=60)
    assert simulation.tallies[1].device_s / simulation.busy_s == pytest.approx(0.05, abs=0.02)


def test_batch_work_is_not_starved_by_interactive_work() -> None:
    rng = random.Random(9)
    loads = [interactive("greedy", 450, rng), bulk("archive", 64, short(rng))]
    simulation = play(loads, rng, seconds=30)
    assert simulation.tallies[1].device_s / simulation.busy_s >= 0.04


@pytest.mark.parametrize("believed", [None, CostCurve(a_ms=1.0, b_ms_per_row=0.0, c_ms_per_token=0.05)])
def test_a_missing_or_wrong_curve_is_learnt_while_serving(believed: CostCurve | None) -> None:
    rng = random.Random(10)
    loads = [interactive("chat", 10, rng), bulk("archive", 128, short(rng))]
    simulation = play(loads, rng, seconds=60, believed=believed)
    assert simulation.tallies[0].kept_share >= 0.98
    assert simulation.tallies[1].answered / 60 > 280


def test_a_noisy_machine_does_not_shrink_batches_until_nothing_gets_through() -> None:
    rng = random.Random(11)
    loads = [Traffic("main", "standard", short(rng), outstanding=64, target_s=0.25)]
    simulation = play(loads, rng, seconds=60, factors=lambda: rng.choice((1.0, 1.0, 1.0, 4.0)))
    average = 1.75
    assert simulation.tallies[0].answered / 60 > 0.75 * 353 / average


def test_the_batch_classes_promised_share_can_be_chosen() -> None:
    rng = random.Random(12)
    loads = [Traffic("busy", "standard", short(rng), outstanding=200), bulk("archive", 64, short(rng))]
    simulation = play(loads, rng, seconds=60, policy=Policy(batch_min_share=0.3))
    assert simulation.tallies[1].device_s / simulation.busy_s == pytest.approx(0.3, abs=0.03)
