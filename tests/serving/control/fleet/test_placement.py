"""Placement is pure: what is wished for, where there is room, and never more than that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.contract import DeviceInfo
from serving.control.fleet.placement import MEMORY_SHARE, Placed, Site, Wish, after, decide

GIB = 2**30


def site(name: str, *, memory_bytes: int = 10 * GIB, is_live: bool = True, cuda: int = 0) -> Site:
    devices = [DeviceInfo(name="cpu", kind="cpu", memory_bytes=memory_bytes)]
    devices += [DeviceInfo(name=f"cuda:{i}", kind="cuda", memory_bytes=memory_bytes) for i in range(cuda)]
    return Site(f"hst_{name}", name, is_live, tuple(devices))


def wish(
    count: int, *, version: str = "mv_1", device: str = "cpu", memory_bytes: int = GIB, id: str = "dep_1"
) -> Wish:
    return Wish(id, version, count, device, memory_bytes)


def placed(
    slot: int, *, version: str = "mv_1", host: str = "hst_a", state: str = "ready", id: str = ""
) -> Placed:
    return Placed(id or f"rep_{slot}", "dep_1", version, host, slot, "cpu", state, memory_bytes=GIB)  # type: ignore[arg-type]


def test_replicas_are_spread_over_hosts() -> None:
    decision = decide([wish(4)], [site("a"), site("b")], [])
    assert sorted(create.host_id for create in decision.create) == ["hst_a", "hst_a", "hst_b", "hst_b"]
    assert sorted(create.slot for create in decision.create) == [1, 2, 3, 4]


def test_without_a_host_the_reason_says_so() -> None:
    assert decide([wish(1)], [], []).blocked == {"dep_1": "No host is connected: start an agent."}
    assert decide([wish(1)], [site("a", is_live=False)], []).blocked


def test_a_device_nobody_has_is_named() -> None:
    blocked = decide([wish(1, device="cuda:1")], [site("a", cuda=1)], []).blocked["dep_1"]
    assert "cuda:1" in blocked


def test_any_accelerator_takes_the_one_with_most_memory_left() -> None:
    decision = decide([wish(2, device="cuda")], [site("a", cuda=2)], [])
    assert {create.device for create in decision.create} == {"cuda:0", "cuda:1"}


def test_memory_is_counted_and_the_reason_has_the_numbers() -> None:
    decision = decide([wish(3, memory_bytes=4 * GIB)], [site("a", memory_bytes=10 * GIB)], [])
    assert len(decision.create) == 2
    assert decision.blocked["dep_1"] == (
        "1 more replica(s) need 4,096 MiB each; the most that is free on one “cpu” device is 1,024 MiB."
    )


def test_what_still_drains_still_holds_memory() -> None:
    leaving = Placed(
        "rep_x", "dep_0", "mv_0", "hst_a", 1, "cpu", "draining", is_wanted=False, memory_bytes=9 * GIB
    )
    assert decide([wish(1)], [site("a")], [leaving]).blocked


def test_fewer_wanted_removes_those_that_are_not_ready_first() -> None:
    own = [placed(1), placed(2, state="loading"), placed(3)]
    decision = decide([wish(2)], [site("a")], own)
    assert [removal.replica_id for removal in decision.remove] == ["rep_2"]


def test_a_stopped_deployment_keeps_nothing() -> None:
    decision = decide([], [site("a")], [placed(1), placed(2)])
    assert {removal.replica_id for removal in decision.remove} == {"rep_1", "rep_2"}


def test_a_switch_creates_beside_and_removes_only_when_the_new_ones_are_ready() -> None:
    old = [placed(1, version="mv_0"), placed(2, version="mv_0")]
    first = decide([wish(2)], [site("a")], old)
    assert len(first.create) == 2 and not first.remove
    half = [*old, placed(3), placed(4, state="warming")]
    assert not decide([wish(2)], [site("a")], half).remove
    done = [*old, placed(3), placed(4)]
    assert {r.replica_id for r in decide([wish(2)], [site("a")], done).remove} == {"rep_1", "rep_2"}


def test_a_switch_without_room_for_both_goes_one_by_one_and_keeps_the_last_ready_one() -> None:
    tight = [site("a", memory_bytes=3 * GIB)]
    old = [placed(1, version="mv_0"), placed(2, version="mv_0")]
    first = decide([wish(2)], tight, old)
    assert [removal.replica_id for removal in first.remove] == ["rep_2"] and first.blocked
    leaving = after(first, old, {})
    assert not decide([wish(2)], tight, leaving).remove, "one at a time"
    gone = [leaving[0]]
    second = decide([wish(2)], tight, gone)
    assert len(second.create) == 1 and not second.remove
    both = [*gone, placed(2, state="loading")]
    assert not decide([wish(2)], tight, both).remove, "the only ready one stays"
    both = [*gone, placed(2)]
    assert [removal.replica_id for removal in decide([wish(2)], tight, both).remove] == ["rep_1"]


def test_replicas_of_a_silent_host_move_only_where_there_is_room() -> None:
    lost = [placed(1, host="hst_gone", state="failed")]
    gone = site("gone", is_live=False)
    alone = decide([wish(1)], [gone], lost)
    assert not alone.create and not alone.remove and not alone.blocked
    moved = decide([wish(1)], [gone, site("a")], lost)
    assert [create.host_id for create in moved.create] == ["hst_a"]
    assert [removal.reason for removal in moved.remove] == ["its host is silent"]


def test_a_host_that_came_back_loses_only_the_surplus() -> None:
    both = [placed(1, host="hst_a"), placed(2, host="hst_b")]
    decision = decide([wish(1)], [site("a"), site("b")], both)
    assert [removal.replica_id for removal in decision.remove] == ["rep_2"]


SITES = st.lists(
    st.builds(
        site,
        st.sampled_from(["a", "b", "c"]),
        memory_bytes=st.integers(0, 8).map(lambda gib: gib * GIB),
        is_live=st.booleans(),
        cuda=st.integers(0, 2),
    ),
    max_size=3,
    unique_by=lambda made: made.name,
)
WISHES = st.lists(
    st.builds(
        wish,
        st.integers(0, 4),
        version=st.sampled_from(["mv_1", "mv_2"]),
        device=st.sampled_from(["cpu", "cuda", "cuda:1"]),
        memory_bytes=st.integers(0, 3).map(lambda gib: gib * GIB),
        id=st.sampled_from(["dep_1", "dep_2", "dep_3"]),
    ),
    max_size=3,
    unique_by=lambda made: made.deployment_id,
)
STATES = st.sampled_from(["pending", "loading", "ready", "failed"])


@given(rounds=st.lists(st.tuples(WISHES, SITES, st.lists(STATES, max_size=12)), min_size=1, max_size=4))
def test_placement_settles_within_its_bounds_whatever_came_before(
    rounds: list[tuple[list[Wish], list[Site], list[str]]],
) -> None:
    replicas: list[Placed] = []
    for wishes, sites, states in rounds:
        needs = {made.deployment_id: made.memory_bytes for made in wishes}
        before = replicas
        decision = decide(wishes, sites, replicas)
        replicas = after(decision, replicas, needs)
        live = {made.host_id for made in sites if made.is_live}
        _check_bounds(wishes, sites, before, decision)
        for made in wishes:
            now_reachable = [
                r
                for r in replicas
                if r.is_wanted
                and r.deployment_id == made.deployment_id
                and r.version_id == made.version_id
                and r.host_id in live
            ]
            assert len(now_reachable) <= made.count
            slots = [r.slot for r in replicas if r.is_wanted and r.deployment_id == made.deployment_id]
            assert len(slots) == len(set(slots))
        again = decide(wishes, sites, replicas)
        assert not again.create, "applied to its own result it creates nothing more"
        assert {r.replica_id for r in again.remove} == set(), "and removes nothing more"
        for index, state in enumerate(states[: len(replicas)]):
            r = replicas[index]
            replicas[index] = Placed(
                r.replica_id, r.deployment_id, r.version_id, r.host_id, r.slot, r.device, state,  # type: ignore[arg-type]
                r.is_wanted, r.memory_bytes,
            )  # fmt: skip


def _check_bounds(wishes: list[Wish], sites: list[Site], before: list[Placed], decision) -> None:  # type: ignore[no-untyped-def]
    needs = {made.deployment_id: made.memory_bytes for made in wishes}
    devices = {(made.host_id, d.name): d for made in sites if made.is_live for d in made.devices}
    for create in decision.create:
        assert (create.host_id, create.device) in devices, "only on live hosts and devices they have"
    for spot, device in devices.items():
        added = sum(needs[c.deployment_id] for c in decision.create if (c.host_id, c.device) == spot)
        held = sum(r.memory_bytes for r in before if (r.host_id, r.device) == spot)
        assert not added or added + held <= device.memory_bytes * MEMORY_SHARE
