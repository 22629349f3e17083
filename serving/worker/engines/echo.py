"""The echo engine: answers with its input, as a whole or in parts. Measures everything around an engine, and
needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from serving.contract import TensorSpec
from serving.errors import InvalidTensor
from serving.worker.engines.contract import (
    Emission,
    EngineInput,
    EngineOutput,
    Finished,
    Outcome,
    Run,
    Signature,
    Stalled,
    Step,
    StreamGate,
    Tensor,
)

_DATATYPES = ("INT64", "FP32")
_TEXT_SHAPE = (-1,)


class EchoEngine:
    """Returns tensor `x` (INT64 or FP32, any shape with a batch dimension) as tensor `y`.

    With `is_text` it takes BYTES `text_input` and answers BYTES `text_output`. With `chunks` above 1 a
    streamed request gets its input back in up to that many parts, `chunk_us` apart: pieces of the last
    dimension, or the words of a single text.
    """

    max_tokens = 0

    def __init__(
        self,
        *,
        max_batch_rows: int = 256,
        sleep_us: int = 0,
        chunks: int = 1,
        chunk_us: int = 0,
        is_text: bool = False,
    ) -> None:
        self.max_batch_rows = max_batch_rows
        self._sleep_s = sleep_us / 1e6
        self._chunks = chunks
        self._chunk_s = chunk_us / 1e6
        self._is_text = is_text
        self._input, self._output = ("text_input", "text_output") if is_text else ("x", "y")

    @property
    def can_yield(self) -> bool:
        return self._chunks > 1

    def load(self) -> None:
        """Nothing to load."""

    def warm_up(self) -> None:
        """Nothing to warm."""

    def signature(self) -> Signature:
        datatype, shape = ("BYTES", _TEXT_SHAPE) if self._is_text else ("FP32", (-1, -1))
        return Signature(
            (TensorSpec(name=self._input, datatype=datatype, shape=shape),),
            (TensorSpec(name=self._output, datatype=datatype, shape=shape),),
        )

    def check(self, item: EngineInput) -> None:
        name = self._input
        tensor = item.tensors.get(name)
        if tensor is None or len(item.tensors) != 1:
            raise InvalidTensor(f"echo takes one tensor named {name}", param=name)
        datatypes = ("BYTES",) if self._is_text else _DATATYPES
        if tensor.datatype not in datatypes:
            raise InvalidTensor(f"{name}: datatype must be one of {', '.join(datatypes)}", param=name)

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        outcomes: list[Outcome] = [self._whole(item) for item in inputs]
        streamed = [item for item in inputs if self._is_streamed(item)]
        if streamed:
            for item, outcome in zip(inputs, outcomes, strict=True):
                if not self._is_streamed(item):
                    yield Finished(item, outcome)
            yield from self._stream(streamed)
        return outcomes

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return sum(item.rows for item in inputs)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        if self._is_text:
            return EngineInput(rows, {self._input: Tensor("BYTES", np.full(rows, b"a sample text", object))})
        return EngineInput(rows, {self._input: Tensor("FP32", np.zeros((rows, 4), np.float32))})

    def _whole(self, item: EngineInput) -> EngineOutput:
        """What follows the chunks of a streamed input: nothing."""
        return EngineOutput({} if self._is_streamed(item) else {self._output: item.tensors[self._input]})

    # ------------------------------------------------------------ streaming

    def _is_streamed(self, item: EngineInput) -> bool:
        return item.stream is not None and self._chunks > 1

    def _stream(self, inputs: Sequence[EngineInput]) -> Generator[Step, None, None]:
        """A part of every input whose reader has room, then a boundary; and so on."""
        going = [_Going(item, self._parts(item.tensors[self._input])) for item in inputs]
        while True:
            done = [one for one in going if one.is_done]
            for one in done:
                yield Finished(one.item, EngineOutput())
            going = [one for one in going if one not in done]
            if not going:
                return
            writable = [one for one in going if one.gate.is_writable]
            if not writable:
                yield Stalled(tuple(one.item for one in going))
                continue
            if self._chunk_s:
                time.sleep(self._chunk_s)
            for one in writable:
                yield Emission(one.item, EngineOutput({self._output: one.take()}))
            yield None

    def _parts(self, tensor: Tensor) -> Iterator[Tensor]:
        array = tensor.array
        if self._is_text and array.size == 1:
            for words in _groups(_words(array.item(0)), self._chunks):
                yield Tensor("BYTES", np.array([b"".join(words)], object))
            return
        axis = array.ndim - 1
        pieces = min(self._chunks, array.shape[axis]) if axis else 1
        for piece in np.array_split(array, max(1, pieces), axis=axis):
            yield Tensor(tensor.datatype, piece)


class _Going:
    """One input on its way back."""

    def __init__(self, item: EngineInput, parts: Iterator[Tensor]) -> None:
        assert item.stream is not None
        self.item = item
        self.gate: StreamGate = item.stream
        self._parts = parts
        self.part = next(parts, None)

    @property
    def is_done(self) -> bool:
        return self.part is None or not self.gate.is_wanted

    def take(self) -> Tensor:
        part, self.part = self.part, next(self._parts, None)
        assert part is not None
        return part


def _words(text: bytes) -> list[bytes]:
    """Pieces that end with their space; joined they are the text."""
    words = text.split(b" ")
    return [word + b" " for word in words[:-1]] + words[-1:]


def _groups(items: list[bytes], count: int) -> Iterator[list[bytes]]:
    """At most `count` runs of about the same length."""
    count = min(count, len(items))
    for index in range(count):
        yield items[index * len(items) // count : (index + 1) * len(items) // count]
