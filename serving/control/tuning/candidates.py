"""Which sets of options are worth measuring for a version on a host. Pure.

Few, because each takes a load, a warm-up and some seconds of measuring: what is known to pay on such a host,
alone and in the combinations that add up. What the host cannot do is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from django.utils.translation import gettext_noop as _

from serving.contract import EngineName, OptionValue
from serving.control.catalog.options import BY_ENGINE

Options = dict[str, OptionValue]

MAX_CANDIDATES = 12
MOST_THREADS = 4
"""Beyond it a replica gains less than another replica would."""
PLAIN: Options = {"dtype": "fp32", "quantize": "none", "execution": "auto", "compile": False}
"""The reference: full precision, nothing approximated."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the measuring host has; `features` as in its `HostReport`."""

    kind: Literal["cpu", "cuda"] = "cpu"
    cores: int = 1
    features: frozenset[str] = frozenset()


class Skipped(NamedTuple):
    """Options that were not tried, and why."""

    options: Options
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`candidates` are complete option sets; the first is the reference."""

    candidates: tuple[Options, ...]
    skipped: tuple[Skipped, ...] = ()


def plan(engine: EngineName, options: Mapping[str, OptionValue], facts: HostFacts) -> Plan:
    """The reference, the version as it is, then variants; at most `MAX_CANDIDATES`, none twice."""
    reference = reference_of(engine, options)
    found, skipped = [reference], []
    if dict(options) != reference:
        found.append(dict(options))
    for wish in _wishes(engine, options, facts):
        if not _has(engine, wish):
            continue
        candidate = reference | wish
        reason = _missing(wish, facts)
        if reason:
            skipped.append(Skipped(wish, reason))
        elif candidate not in found and len(found) < MAX_CANDIDATES:
            found.append(candidate)
    return Plan(tuple(found), tuple(skipped))


def reference_of(engine: EngineName, options: Mapping[str, OptionValue]) -> Options:
    """The version's options with everything that approximates or specialises taken back."""
    known = {option.name for option in BY_ENGINE[engine]}
    return dict(options) | {name: value for name, value in PLAIN.items() if name in known}


def changes(reference: Mapping[str, OptionValue], options: Mapping[str, OptionValue]) -> Options:
    """What sets a candidate apart from the reference."""
    return {name: value for name, value in options.items() if reference.get(name) != value}


def _wishes(engine: EngineName, options: Mapping[str, OptionValue], facts: HostFacts) -> Iterator[Options]:
    """In the order of what they promise: where there is no room for all, the last ones go."""
    half: list[Options] = [{"dtype": "bf16"}]
    if facts.kind == "cuda":
        half.append({"dtype": "fp16"})
    more_threads: Options = {"threads": max(1, min(MOST_THREADS, facts.cores))}
    if engine == "encoder":
        yield from half
        yield {"quantize": "int8"}
        yield {"compile": True}
        yield from (each | {"compile": True} for each in half)
        yield {"execution": "padded"}
        yield {"dtype": "bf16", "execution": "padded"}
        yield {"execution": "onnx"}
        yield {"execution": "onnx", "quantize": "int8"}
    elif engine == "tensor":
        yield {"compile": True}
    elif engine == "python":
        yield from half
    if facts.kind == "cpu" and facts.cores > 1 and engine != "echo":
        yield more_threads
        yield more_threads | {"dtype": "bf16"}


def _has(engine: EngineName, wish: Options) -> bool:
    """Whether the engine has these options with these values."""
    known = {option.name: option for option in BY_ENGINE[engine]}
    return all(
        name in known and (known[name].kind != "choice" or value in known[name].choices)
        for name, value in wish.items()
    )


def _missing(wish: Options, facts: HostFacts) -> str:
    """What the host lacks for it; empty when nothing."""
    on_cpu = facts.kind == "cpu"
    if on_cpu and wish.get("dtype") == "bf16" and "bf16" not in facts.features:
        return _("the host's CPU computes bf16 slower than fp32")
    if wish.get("quantize") == "int8" and not on_cpu:
        return _("int8 is for CPUs")
    if wish.get("compile") and "compiler" not in facts.features:
        return _("the host has no C++ compiler")
    if wish.get("execution") == "onnx" and "onnxruntime" not in facts.features:
        return _("onnxruntime is not installed on the host")
    return ""
