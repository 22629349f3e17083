"""What an engine is: loads one model version, checks inputs, runs batches, yields between layers.

No torch here: the intake and the loop know engines only through this module.

    Fault                      what the loop does
    ├── DataPlaneError         this input is answered with it (InvalidTensor, InputTooLong, OutOfMemory …)
    ├── LoadFailed             the version cannot be served; its message is for a person
    └── DeviceLost             the process is of no more use: it reports the reason and exits
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from serving.contract import TensorSpec
from serving.errors import DataPlaneError


class LoadFailed(Exception):
    """The artifact cannot be served: a file is missing, an architecture is unsupported, and so on."""


class DeviceLost(Exception):
    """The device failed in a way that only a new process can repair."""


class Tensor(NamedTuple):
    """One tensor outside the engines. BF16 values travel as `uint16` bit patterns, BYTES as objects."""

    datatype: str
    """Name in the Open Inference Protocol."""
    array: np.ndarray


class StreamGate(Protocol):
    """How much of a streamed answer is wanted now. Asked on the engine's thread; never blocks.

    Engines only ask; `emit` and `stood_still` are the loop's.
    """

    @property
    def is_wanted(self) -> bool:
        """False once nobody reads the answer: its work may be dropped, whatever its outcome says."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether the reader has room for another chunk.

        An engine that goes by steps leaves out inputs that are not; for one that does not look, a bounded
        number of chunks is kept, then the request alone fails with `client_too_slow`.
        """
        ...

    @property
    def has_begun(self) -> bool:
        """Whether a chunk was emitted: the input must not run again."""
        ...

    def emit(self, output: EngineOutput) -> None: ...

    def stood_still(self, waited_s: float, *, is_contended: bool) -> None: ...


@dataclass(slots=True)
class EngineInput:
    """One request's part of a batch: `rows` items along dimension 0 of every tensor.

    Text engines get one tensor `input_ids` that holds the ids of all rows behind each other; `row_tokens`
    says where they are cut.
    """

    rows: int
    tensors: dict[str, Tensor]
    row_tokens: tuple[int, ...] = ()
    stream: StreamGate | None = None
    """Set when the client wants the answer in parts. An engine that cannot just answers as a whole."""
    row_units: int = 1
    """How much more one row is than one of the smallest size, where a model's sizes are free; set by `check`."""

    @property
    def tokens(self) -> int:
        """Tokens of all rows; an engine without tokens counts one per row, or more for large rows."""
        return sum(self.row_tokens) if self.row_tokens else self.rows * self.row_units


@dataclass(slots=True)
class EngineOutput:
    """Named outputs of one input, `rows` along dimension 0."""

    tensors: dict[str, Tensor] = field(default_factory=dict)


Outcome = EngineOutput | DataPlaneError


class Emission(NamedTuple):
    """A chunk of the streamed answer to `input`, which has a `stream`."""

    input: EngineInput
    output: EngineOutput


class Finished(NamedTuple):
    """The outcome of one input whose batch goes on. What `run` returns for it in the end is ignored."""

    input: EngineInput
    outcome: Outcome


class Stalled(NamedTuple):
    """The batch can do nothing before one of these streamed inputs is writable or no longer wanted."""

    inputs: tuple[EngineInput, ...]


Step = Emission | Finished | Stalled | None
Run = Generator[Step, None, list[Outcome]]
"""A batch under way: advances by one layer (or as a whole), returns one outcome per input, in order.

Yields None at a layer boundary, where urgent work may run; `Emission` and `Finished` between boundaries;
`Stalled` when only readers can get it on. What a streamed input's outcome holds follows its chunks: nothing, as a rule.
"""


class Signature(NamedTuple):
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Engine(Protocol):
    """One model version on one device.

    `load` and `warm_up` are called once, in that order, on the thread that later runs batches; `check` is
    called on another thread, for every request, and must be cheap.
    """

    @property
    def can_yield(self) -> bool:
        """Whether `run` yields between layers, so that urgent work can run there; valid after `load`."""
        ...

    @property
    def max_batch_rows(self) -> int:
        """Valid after `load`; so is `max_tokens`."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest row in tokens; 0 for engines without tokens."""
        ...

    def load(self) -> None:
        """Raises `LoadFailed`, `OutOfMemory` or `DeviceLost`."""
        ...

    def warm_up(self) -> None:
        """Run every batch bucket once, so that no request pays for a first call."""
        ...

    def signature(self) -> Signature:
        """Inputs and outputs as clients see them; valid after `load`."""
        ...

    def check(self, item: EngineInput) -> None:
        """Raises `InvalidTensor` or `InputTooLong` for an input that can never run."""
        ...

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        """Run a batch. An exception fails the batch as a whole; the loop then looks for the culprit."""
        ...

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        """What the device works on for this batch, padding included, in the unit of `EngineInput.tokens`.

        Cheap and pure, from any thread; valid after `load`. Never less than the inputs' own tokens.
        """
        ...

    def notes(self) -> tuple[str, ...]:
        """Sentences for a person on how this version executes here and why; valid after `warm_up`."""
        ...

    def sample(self, rows: int, tokens: int) -> EngineInput:
        """A synthetic input of that size, for measuring."""
        ...
