"""Which options are worth measuring: few, none twice, none that the host cannot do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.catalog.options import BY_ENGINE, complete
from serving.control.tuning.candidates import MAX_CANDIDATES, HostFacts, changes, plan, reference_of

EVERYTHING = frozenset({"bf16", "int8", "compiler", "onnxruntime"})
features = st.frozensets(st.sampled_from(sorted(EVERYTHING)))
facts = st.builds(HostFacts, st.sampled_from(["cpu", "cuda"]), st.integers(1, 128), features)


@given(engine=st.sampled_from(sorted(BY_ENGINE)), host=facts, dtype=st.sampled_from(["fp32", "bf16", "fp16"]))
def test_a_plan_is_small_valid_and_starts_with_the_reference(engine, host: HostFacts, dtype: str) -> None:
    chosen = {"dtype": dtype} if any(option.name == "dtype" for option in BY_ENGINE[engine]) else {}
    options = complete(engine, chosen)
    found = plan(engine, options, host).candidates
    assert found[0] == reference_of(engine, options)
    assert len(found) <= MAX_CANDIDATES
    assert [each for index, each in enumerate(found) if each in found[:index]] == []
    assert all(complete(engine, each) == each for each in found)
    assert options in found


def test_an_encoder_on_a_capable_cpu_is_tried_in_every_way_that_pays() -> None:
    options = complete("encoder", {})
    found = plan("encoder", options, HostFacts("cpu", 2, EVERYTHING))
    tried = [changes(found.candidates[0], each) for each in found.candidates]
    for wish in ({}, {"dtype": "bf16"}, {"quantize": "int8"}, {"compile": True}, {"execution": "padded"}):
        assert wish in tried
    assert {"threads": 2} in tried
    assert {"dtype": "fp16"} not in tried, "a CPU has no use for it"


@pytest.mark.parametrize(
    ("wish", "host", "word"),
    [
        ({"dtype": "bf16"}, HostFacts("cpu", 1, frozenset()), "slower"),
        ({"compile": True}, HostFacts("cpu", 1, frozenset()), "compiler"),
        ({"quantize": "int8"}, HostFacts("cuda", 1, EVERYTHING), "CPUs"),
    ],
)
def test_what_the_host_cannot_do_is_left_out_with_the_reason(wish: dict, host: HostFacts, word: str) -> None:
    found = plan("encoder", complete("encoder", {}), host)
    assert [word in reason for options, reason in found.skipped if options == wish] == [True]
    assert all(changes(found.candidates[0], each) != wish for each in found.candidates)


def test_a_gpu_is_tried_with_both_half_formats_and_no_more_threads() -> None:
    found = plan("encoder", complete("encoder", {}), HostFacts("cuda", 16, EVERYTHING))
    tried = [changes(found.candidates[0], each) for each in found.candidates]
    assert {"dtype": "fp16"} in tried and {"dtype": "bf16"} in tried
    assert not any("threads" in each for each in tried)


def test_a_version_that_is_approximated_already_is_compared_with_full_precision() -> None:
    options = complete("encoder", {"dtype": "bf16", "compile": True})
    first, second = plan("encoder", options, HostFacts("cpu", 1, EVERYTHING)).candidates[:2]
    assert (first["dtype"], first["compile"]) == ("fp32", False)
    assert second == options


def test_the_echo_engine_has_nothing_to_vary() -> None:
    assert len(plan("echo", complete("echo", {}), HostFacts("cpu", 8, EVERYTHING)).candidates) == 1
