"""What a candidate is measured on: the operator's samples, else our own. One engine input per row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serving.contract import SampleTensor, TensorSpec, VersionEntry
from serving.errors import InvalidTensor
from serving.worker.engines import datatypes
from serving.worker.engines.contract import Engine, EngineInput, LoadFailed, Tensor

OWN_ROWS = 32
"""Rows that are made up when nobody gave any."""
TEXTS = (
    "Where is my order?",
    "The invoice of March was paid twice, please return one of the two amounts.",
    "Reset my password",
    "A pump in hall four has been louder than usual since the bearing was replaced last week.",
    "She walked along the river until the lights of the town had gone.",
    "def add(left, right): return left + right",
    "Temperatures will fall below zero during the night, with fog in the valleys and clear skies above them.",
    "Thanks!",
    "The committee approved the budget after a short discussion, with two members voting against it.",
    "What is the difference between a lease and a rental agreement?",
    "Berlin ist die Hauptstadt der Bundesrepublik Deutschland.",
    "El tren de las ocho llega con veinte minutos de retraso.",
    "这台设备的保修期是两年。",
    "Light takes about eight minutes and twenty seconds to travel from the sun to the earth.",
    "Cancel the meeting on Friday and find a slot in the following week for everybody who had accepted it.",
    "It was neither the price nor the colour that made them choose the other one, but the fact that it could be "
    "repaired by anybody with an ordinary screwdriver and half an hour of patience on a Sunday afternoon.",
)
"""Our own sentences: short and long ones, several languages, one of code."""


def items(
    engine: Engine, version: VersionEntry, texts: Sequence[str], tensors: Sequence[SampleTensor]
) -> list[EngineInput]:
    """Single-row inputs for a loaded engine. Raises `InvalidTensor` or `LoadFailed`."""
    if engine.max_tokens:
        made = _tokenised(Path(version.artifact_path), texts or TEXTS, engine.max_tokens)
    elif tensors:
        made = _split({each.name: _tensor(each) for each in tensors})
    else:
        made = _split(_made_up(engine.signature().inputs))
    for item in made:
        engine.check(item)
    return made


def _tokenised(artifact: Path, texts: Sequence[str], max_tokens: int) -> list[EngineInput]:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
    except Exception as error:  # the library raises nothing more specific
        raise LoadFailed(f"the artifact's tokenizer cannot be loaded: {str(error)[:200]}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    rows = [np.array(encoding.ids, np.int32) for encoding in tokenizer.encode_batch(list(texts))]
    return [EngineInput(1, {"input_ids": Tensor("INT32", ids)}, (len(ids),)) for ids in rows if ids.size]


def _tensor(sample: SampleTensor) -> Tensor:
    """Raises `InvalidTensor` when the values do not fit the datatype or the shape."""
    try:
        if sample.datatype == "BYTES":
            flat = np.empty(len(sample.data), object)
            flat[:] = [str(item).encode() for item in sample.data]
            return Tensor("BYTES", flat.reshape(sample.shape))
        array = np.array(
            sample.data, np.float32 if sample.datatype == "BF16" else datatypes.NUMPY[sample.datatype]
        )
        if sample.datatype == "BF16":
            array = (array.view(np.uint32) >> 16).astype(np.uint16)
        return Tensor(sample.datatype, array.reshape(sample.shape))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InvalidTensor(f"sample {sample.name}: {error}", param=sample.name) from None


def _made_up(specs: Sequence[TensorSpec]) -> dict[str, Tensor]:
    """Reals from a normal distribution, always the same; zeros elsewhere: an index must stay in its table."""
    random, made = np.random.default_rng(0), {}
    for spec in specs:
        shape = (OWN_ROWS, *(16 if size == -1 else size for size in spec.shape[1:]))
        if spec.datatype == "BYTES":
            made[spec.name] = Tensor("BYTES", np.full(shape, b"sample", object))
        elif spec.datatype == "BF16":
            bits = random.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16
            made[spec.name] = Tensor("BF16", bits.astype(np.uint16))
        else:
            dtype = datatypes.NUMPY[spec.datatype]
            values = random.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
            made[spec.name] = Tensor(spec.datatype, values.astype(dtype))
    return made


def _split(tensors: dict[str, Tensor]) -> list[EngineInput]:
    rows = {tensor.array.shape[0] for tensor in tensors.values() if tensor.array.ndim}
    if len(rows) != 1:
        raise InvalidTensor("the samples do not agree on a batch dimension")
    return [
        EngineInput(1, {name: Tensor(kind, array[at : at + 1]) for name, (kind, array) in tensors.items()})
        for at in range(rows.pop())
    ]
