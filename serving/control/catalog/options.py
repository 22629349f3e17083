"""The options a version may be registered with, per engine: type, range, default, help.

Forms, the API and the documentation are all made from this table. An option that is not in it is refused
by name, so that a typing error never becomes a silent default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext_noop as _

from serving.contract import EngineName

OptionValue = str | int | float | bool
OptionKind = Literal["choice", "flag", "whole"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` None means "decided by the artifact or the platform" and is not stored."""

    name: str
    kind: OptionKind
    default: OptionValue | None
    help: str
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0


DTYPE = Option("dtype", "choice", "fp32", _("Number format of weights and sums."), ("fp32", "bf16", "fp16"))
QUANTIZE = Option(
    "quantize",
    "choice",
    "none",
    _("int8: linear layers in 8 bits, weights per channel, activations scaled as they come. CPU only."),
    ("none", "int8"),
)
EXECUTION = Option(
    "execution",
    "choice",
    "auto",
    _(
        "packed: rows behind each other, without padding; padded: rectangles of similar lengths. "
        "auto packs where that was found to be right; onnx: padded, by onnxruntime (the BERT family)."
    ),
    ("auto", "packed", "padded", "onnx"),
)
CUDA_GRAPHS = Option(
    "cuda_graphs",
    "flag",
    True,
    _("On a GPU, replay recorded launches for small batches instead of launching anew."),
)
COMPILE = Option(
    "compile", "flag", False, _("Compile with torch.compile: slower to load, often faster to run.")
)
THREADS = Option("threads", "whole", 1, _("CPU threads of one replica."), minimum=1, maximum=256)
TASK = Option(
    "task",
    "choice",
    None,
    _("What the model answers with; empty takes what its configuration says."),
    ("embedding", "classification"),
)
POOLING = Option(
    "pooling",
    "choice",
    None,
    _("How token vectors become one embedding; empty takes what the artifact says."),
    ("mean", "cls"),
)
NORMALIZE = Option(
    "normalize", "flag", None, _("Scale embeddings to length 1; empty takes what the artifact says.")
)
MAX_TOKENS = Option(
    "max_tokens",
    "whole",
    None,
    _("Longest input in tokens; empty takes the model's own limit."),
    minimum=1,
    maximum=131_072,
)
TRUNCATE = Option("truncate", "flag", False, _("Cut inputs that are too long instead of refusing them."))
SLEEP_US = Option(
    "sleep_us", "whole", 0, _("Pretended execution time in microseconds."), minimum=0, maximum=60_000_000
)
CHUNKS = Option(
    "chunks",
    "whole",
    1,
    _("Parts a streamed request gets its input back in; 1 answers as a whole."),
    minimum=1,
    maximum=1_000_000,
)
CHUNK_US = Option(
    "chunk_us",
    "whole",
    0,
    _("Pretended time before each part in microseconds."),
    minimum=0,
    maximum=60_000_000,
)
TEXT = Option("text", "flag", False, _("Take and answer text instead of numbers."))


def _max_batch_rows(default: int) -> Option:
    return Option(
        "max_batch_rows",
        "whole",
        default,
        _("Most rows one batch may hold on this version."),
        minimum=1,
        maximum=4096,
    )


BY_ENGINE: dict[EngineName, tuple[Option, ...]] = {
    "encoder": (
        TASK,
        POOLING,
        NORMALIZE,
        MAX_TOKENS,
        TRUNCATE,
        DTYPE,
        QUANTIZE,
        EXECUTION,
        COMPILE,
        CUDA_GRAPHS,
        _max_batch_rows(128),
        THREADS,
    ),
    "tensor": (DTYPE, COMPILE, _max_batch_rows(64), THREADS),
    "onnx": (_max_batch_rows(64), THREADS),
    "python": (DTYPE, _max_batch_rows(32), THREADS),
    "echo": (SLEEP_US, CHUNKS, CHUNK_US, TEXT, _max_batch_rows(256)),
}


class InvalidOptions(ValueError):
    """`errors` maps each offending option to what is wrong with it."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in errors.items()))
        self.errors = errors


def complete(engine: EngineName, given: Mapping[str, Any]) -> dict[str, OptionValue]:
    """The full set of options of a version: `given`, checked, over the defaults.

    Text is accepted for every kind, because forms send text. Raises `InvalidOptions` naming every
    unknown or ill-valued option at once.
    """
    known = {option.name: option for option in BY_ENGINE[engine]}
    errors = {
        name: f"The {engine} engine has no such option; it has {', '.join(known)}."
        for name in given
        if name not in known
    }
    values: dict[str, OptionValue] = {}
    for name, option in known.items():
        try:
            value = _checked(option, given.get(name))
        except ValueError as error:
            errors[name] = str(error)
            continue
        if value is not None:
            values[name] = value
    if errors:
        raise InvalidOptions(errors)
    return values


def _checked(option: Option, value: Any) -> OptionValue | None:
    if value is None or value == "":
        return option.default
    match option.kind:
        case "choice":
            return _choice(option, value)
        case "flag":
            return _flag(value)
        case "whole":
            return _whole(option, value)


def _choice(option: Option, value: Any) -> str:
    if value not in option.choices:
        raise ValueError(f"One of {', '.join(option.choices)}.")
    return str(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    flags = {
        "true": True,
        "on": True,
        "1": True,
        "yes": True,
        "false": False,
        "off": False,
        "0": False,
        "no": False,
    }
    if not isinstance(value, str) or value.lower() not in flags:
        raise ValueError("True or false.")
    return flags[value.lower()]


def _whole(option: Option, value: Any) -> int:
    message = f"A whole number from {option.minimum} to {option.maximum}."
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(message)
    try:
        number = int(value)
    except ValueError:
        raise ValueError(message) from None
    if not option.minimum <= number <= option.maximum:
        raise ValueError(message)
    return number
