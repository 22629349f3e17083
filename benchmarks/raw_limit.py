"""The engine's own limit: the same encoder in a plain loop on one core, nothing else around it.

    python -m benchmarks.raw_limit --core 1      (reads requests as JSON lines, answers each with one)

Sentences are tokenised beforehand, as they are for the worker: in Tidegate the gateway's core does it. The
figure "with tokenisation" does it in the loop, on the same core, which is what peers that tokenise in
their model process are up against.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import msgspec
import numpy as np

from benchmarks import machine, model, stack
from benchmarks.texts import sentences
from serving.contract import CostCurve
from serving.scheduling.cost import CostModel
from serving.worker import engines, memory
from serving.worker.engines.contract import Engine, EngineInput, Tensor

BATCHES = (1, 8, 32)


class Question(msgspec.Struct):
    kind: str
    seconds: float = 2.0


class Limit(msgspec.Struct, kw_only=True):
    """Sentences per second by batch size, the best of them, and the best with tokenisation in the loop."""

    kind: str
    by_batch: dict[str, float]
    best: float
    best_with_tokenisation: float
    curve: CostCurve


def load_engine(dtype: str) -> Engine:
    engine = engines.create(stack.minilm(None, dtype), "cpu", 1)
    engine.load()
    engine.warm_up()
    memory.settle()  # as a worker does: collections that walk the model cost a plain loop 2 to 3 %
    return engine


def as_input(ids: np.ndarray) -> EngineInput:
    return EngineInput(rows=1, tensors={"input_ids": Tensor("INT32", ids)}, row_tokens=(len(ids),))


def run(engine: Engine, inputs: list[EngineInput]) -> None:
    for _ in engine.run(inputs):
        pass


class Loop:
    """Runs batches for some seconds and learns their cost."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokeniser = model.tokeniser()
        self.cost = CostModel(None)

    def measure(self, question: Question) -> Limit:
        ids = model.token_ids(question.kind)
        share = question.seconds / (len(BATCHES) + 1)
        by_batch = {rows: self._rate(ids, rows, share) for rows in BATCHES}
        best = max(by_batch, key=by_batch.__getitem__)
        return Limit(
            kind=question.kind,
            by_batch={str(rows): round(rate, 1) for rows, rate in by_batch.items()},
            best=round(by_batch[best], 1),
            best_with_tokenisation=round(self._rate_with_tokenisation(question.kind, best, share), 1),
            curve=self.cost.curve,
        )

    def _rate(self, ids: list[np.ndarray], rows: int, seconds: float) -> float:
        inputs = [as_input(each) for each in ids]
        position, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            batch = [inputs[(position + offset) % len(inputs)] for offset in range(rows)]
            started = time.perf_counter()
            run(self._engine, batch)
            took = time.perf_counter() - started
            self.cost.learn(rows, sum(each.tokens for each in batch), took)
            position += rows
        return position / elapsed

    def _rate_with_tokenisation(self, kind: str, rows: int, seconds: float) -> float:
        texts = sentences(kind)
        position, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            batch = [texts[(position + offset) % len(texts)] for offset in range(rows)]
            encoded = self._tokeniser.encode_batch(batch)
            run(self._engine, [as_input(np.asarray(each.ids, np.int32)) for each in encoded])
            position += rows
        return position / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.raw_limit", description=__doc__)
    parser.add_argument("--core", type=int)
    parser.add_argument("--dtype", default="fp32")
    arguments = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # what anybody logs is not an answer
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if arguments.core is not None:
        machine.pin(arguments.core)
    loop = Loop(load_engine(arguments.dtype))
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        answer = loop.measure(msgspec.json.decode(line, type=Question))
        print(msgspec.json.encode(answer).decode(), file=answers, flush=True)


if __name__ == "__main__":
    main()
