"""The encoder engine: checks token ids, runs the packed or the padded encoder, deals rows back out."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import structlog

from serving.contract import TensorSpec
from serving.errors import InputTooLong, InvalidTensor
from serving.worker.engines.contract import (
    EngineInput,
    EngineOutput,
    LoadFailed,
    Outcome,
    Run,
    Signature,
    Tensor,
)
from serving.worker.engines.encoder import settings as encoder_settings
from serving.worker.engines.encoder.settings import EncoderSettings

log = structlog.get_logger(__name__)

INPUT = "input_ids"


class Encoder(Protocol):
    """A loaded encoder: flat ids of rows and their lengths in, named outputs by row out."""

    can_yield: bool

    def executed_tokens(self, lengths: Sequence[int]) -> int: ...

    def notes(self) -> tuple[str, ...]: ...

    @property
    def vocabulary(self) -> int: ...

    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]: ...

    def warm_up(self) -> None: ...


class EncoderEngine:
    """Text comes tokenised: the gateway has the version's tokenizer, the device only computes."""

    def __init__(
        self,
        path: Path,
        options: Mapping[str, str | int | float | bool],
        *,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self._path, self._options = path, options
        self._device, self._threads = device, threads
        self._settings: EncoderSettings
        self._encoder: Encoder
        self._vocabulary = 0

    @property
    def can_yield(self) -> bool:
        return self._encoder.can_yield

    @property
    def max_batch_rows(self) -> int:
        return self._settings.max_batch_rows if self._vocabulary else encoder_settings.DEFAULT_MAX_BATCH_ROWS

    @property
    def max_tokens(self) -> int:
        return self._settings.max_tokens

    def load(self) -> None:
        from serving.worker.engines import torch_device
        from serving.worker.engines.encoder import choosing

        self._settings = encoder_settings.read(self._path, self._options)
        device = torch_device.open_device(self._device, self._threads)
        with torch_device.translated_errors():
            self._encoder = choosing.load(self._settings, device)
            torch_device.synchronize(device)
        self._vocabulary = self._encoder.vocabulary
        log.info("encoder.loaded", kind=type(self._encoder).__name__, dtype=self._settings.dtype)

    def warm_up(self) -> None:
        from serving.worker.engines import torch_device

        with torch_device.translated_errors():
            self._encoder.warm_up()
        self._check_numbers()

    def signature(self) -> Signature:
        return Signature((TensorSpec(name="text", datatype="BYTES", shape=(-1,)),), self._encoder.outputs())

    def check(self, item: EngineInput) -> None:
        tensor = item.tensors.get(INPUT)
        if tensor is None or len(item.tensors) != 1:
            raise InvalidTensor(f"this model takes token ids as {INPUT}", param=INPUT)
        if tensor.datatype not in ("INT32", "INT64") or tensor.array.ndim != 1:
            raise InvalidTensor(f"{INPUT} must be one dimension of INT32 or INT64", param=INPUT)
        lengths = item.row_tokens
        if len(lengths) != item.rows or min(lengths) < 1 or sum(lengths) != tensor.array.size:
            raise InvalidTensor("the rows' token counts do not add up to the ids", param=INPUT)
        if max(lengths) > self.max_tokens:
            raise InputTooLong(
                f"{max(lengths)} tokens are more than this model's {self.max_tokens}",
                numbers={"tokens": max(lengths), "max_tokens": self.max_tokens},
            )
        if tensor.array.min() < 0 or tensor.array.max() >= self._vocabulary:
            raise InvalidTensor(f"token ids must be from 0 to {self._vocabulary - 1}", param=INPUT)

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        from serving.worker.engines import torch_device

        ids = [item.tensors[INPUT].array for item in inputs]
        lengths = [length for item in inputs for length in item.row_tokens]
        with torch_device.translated_errors():
            outputs = yield from self._encoder.run(ids, lengths)
        return _dealt(outputs, inputs)

    def _check_numbers(self) -> None:
        """Weights that overflow the chosen dtype are found here, not in a client's answer."""
        run = self._encoder.run([np.arange(1, 9)], [8])
        while True:
            try:
                next(run)
            except StopIteration as stop:
                outputs: dict[str, Tensor] = stop.value
                break
        if not all(np.isfinite(array).all() for kind, array in outputs.values() if kind == "FP32"):
            raise LoadFailed(f"the outputs are not finite in {self._settings.dtype}: try another dtype")

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return self._encoder.executed_tokens([length for item in inputs for length in item.row_tokens])

    def notes(self) -> tuple[str, ...]:
        return self._encoder.notes()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        """Rows of nearly equal length, none beyond what the model takes."""
        shortest, longer = divmod(tokens, rows)
        lengths = tuple(shortest + (index < longer) for index in range(rows))
        ids = np.resize(np.arange(1, self._vocabulary, dtype=np.int32), tokens)
        return EngineInput(rows, {INPUT: Tensor("INT32", ids)}, lengths)


def _dealt(outputs: dict[str, Tensor], inputs: Sequence[EngineInput]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    start = 0
    for item in inputs:
        stop = start + item.rows
        outcomes.append(
            EngineOutput({name: Tensor(kind, array[start:stop]) for name, (kind, array) in outputs.items()})
        )
        start = stop
    return outcomes
