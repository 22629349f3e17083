"""One bad item fails alone: what happens when a batch as a whole raises.

The batch is halved until the culprit is by itself. Every item runs at most log2(rows) + 1 times, so a
poisoned batch costs a small multiple of its own time, and its neighbours still get their answers. A batch
that does not fit the device's memory is halved alike, down to single rows, and the size that failed is
remembered.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import structlog

from serving.errors import DataPlaneError, EngineFailed, OutOfMemory
from serving.worker.engines import promises
from serving.worker.engines.contract import (
    DeviceLost,
    Engine,
    EngineInput,
    EngineOutput,
    Finished,
    Outcome,
    Run,
    Step,
)
from serving.worker.engines.slicing import joined, slices

log = structlog.get_logger(__name__)

_LOG_EVERY_S = 1.0
_last_logged = float("-inf")


class IsolatedRun:
    """One batch with exactly one outcome per input, whatever the engine does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_whole = True
        """False once something failed or ran in parts: the batch's time says nothing about the cost curve."""
        self.finished: set[int] = set()
        """Ids of the inputs that have their outcome already."""
        self._overflows: list[Sequence[EngineInput]] = []
        """Parts that the device had no memory for."""
        self._too_large: list[EngineInput] = []
        """Inputs of one row that did not fit by themselves. Kept as they are: ids are used again."""
        self._largest_tokens = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        """Raises `DeviceLost` only."""
        try:
            outcomes = yield from promises.run(self._engine, inputs)
        except DeviceLost:
            raise
        except promises.BrokenPromise as broken:
            self.is_whole = False
            return [EngineFailed(str(broken)) for _ in inputs]
        except (OutOfMemory, MemoryError) as error:
            self.is_whole = False
            self._overflows.append(inputs)
            return (yield from self._with_less_memory(inputs, error))
        except Exception as error:  # noqa: BLE001 - engines run code of others: anything may come out
            self.is_whole = False
            if len(inputs) == 1:
                return [_failure(error)]
            return (yield from self._run_again(inputs, error))
        if not self.is_whole:
            self._largest_tokens = max(self._largest_tokens, _tokens(inputs))
        return outcomes

    def culprits(self, outcomes: Sequence[Outcome]) -> list[int]:
        """Positions of the inputs for whose sake the batch ran in parts; `outcomes` are what it came to."""
        if self.is_whole:
            return []
        return [position for position, one in enumerate(outcomes) if isinstance(one, DataPlaneError)]

    @property
    def overflow_tokens(self) -> int:
        """The smallest part that the device had no memory for, in tokens; 0 when none says anything of sizes.

        Parts no larger than one that fitted do not count, nor do those with an input that fails by itself:
        such inputs are to blame, not the size.
        """
        blamed = {id(item) for item in self._too_large}
        telling = [part for part in self._overflows if not any(id(item) in blamed for item in part)]
        sizes = map(_tokens, telling)
        return min((tokens for tokens in sizes if tokens > self._largest_tokens), default=0)

    @property
    def largest_failed_tokens(self) -> int:
        """The largest part that the device had no memory for, whatever the reason; 0 when all fitted."""
        return max(map(_tokens, self._overflows), default=0)

    def _with_less_memory(self, inputs: Sequence[EngineInput], error: Exception) -> Run:
        """Fewer inputs at a time; of one input fewer rows; what remains too large is refused."""
        if len(inputs) > 1:
            return (yield from self._run_again(inputs, error))
        (item,) = inputs
        if item.rows > 1 and item.stream is None:
            return [(yield from self._run_rows(item))]
        self._too_large.append(item)
        return [_out_of_memory(inputs)]

    def _run_rows(self, item: EngineInput) -> Generator[Step, None, Outcome]:
        """One input in halves of its rows; it fails as a whole when one of them does."""
        outputs: list[EngineOutput] = []
        for piece in slices(item, (item.rows + 1) // 2):
            outcome = yield from self._run_piece(piece)
            if isinstance(outcome, DataPlaneError):
                self._blame(item)
                return outcome
            outputs.append(outcome)
        try:
            return EngineOutput(joined(outputs))
        except EngineFailed as error:
            return error

    def _run_piece(self, piece: EngineInput) -> Generator[Step, None, Outcome]:
        """Nobody outside knows a piece: of its steps only boundaries are passed on."""
        run, outcome = self.run([piece]), None
        while True:
            try:
                step = next(run)
            except StopIteration as stop:
                return outcome or stop.value[0]
            if isinstance(step, Finished):
                outcome = step.outcome
            elif step is None:
                yield step

    def _blame(self, item: EngineInput) -> None:
        """One of its rows does not fit by itself, so that batches with it say nothing of sizes."""
        if self._too_large:
            self._too_large.append(item)

    def _run_again(self, inputs: Sequence[EngineInput], error: Exception) -> Run:
        """In halves; but a streamed input that sent a chunk cannot take it back, so it fails here."""
        has_begun = [self._has_begun(item) for item in inputs]
        if not any(has_begun):
            return (yield from self._run_halves(inputs))
        others = [item for item, begun in zip(inputs, has_begun, strict=True) if not begun]
        outcomes = iter((yield from self.run(others)) if others else [])
        failure = _out_of_memory(inputs) if isinstance(error, MemoryError) else _failure(error)
        return [failure if begun else next(outcomes) for begun in has_begun]

    def _has_begun(self, item: EngineInput) -> bool:
        return (item.stream is not None and item.stream.has_begun) or id(item) in self.finished

    def _run_halves(self, inputs: Sequence[EngineInput]) -> Run:
        middle = len(inputs) // 2
        outcomes: list[Outcome] = []
        for half in (inputs[:middle], inputs[middle:]):
            outcomes += yield from self.run(half)
        return outcomes


def _tokens(inputs: Sequence[EngineInput]) -> int:
    return sum(item.tokens for item in inputs)


def _failure(error: Exception) -> DataPlaneError:
    if isinstance(error, DataPlaneError):
        return error
    # The text may hold paths or data of the model's code: it goes to the log, the client sees the kind.
    if _may_log(time.monotonic()):
        log.warning("item.failed", error_type=type(error).__name__, exc_info=error)
    return EngineFailed(f"the model failed on this input ({type(error).__name__})")


def _may_log(now: float) -> bool:
    """One trace a second: a client that sends nothing but poison must not fill the disk."""
    global _last_logged
    if now - _last_logged < _LOG_EVERY_S:
        return False
    _last_logged = now
    return True


def _out_of_memory(inputs: Sequence[EngineInput]) -> OutOfMemory:
    rows = sum(item.rows for item in inputs)
    return OutOfMemory(
        f"the device has not enough memory for {rows} rows", retry_after_s=1.0, numbers={"rows": rows}
    )
