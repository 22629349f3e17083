"""How far two runs over the same samples are apart, and the file in which the first one waits. numpy only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from serving.contract import Agreement
from serving.errors import EngineFailed
from serving.worker.engines.contract import EngineOutput, Tensor

Rows = dict[str, list[np.ndarray]]
"""Output name → one flat array per row. Reals are FP32 or FP64, texts are bytes (`S`)."""


def rows_of(outputs: Iterable[EngineOutput]) -> Rows:
    """Raises `EngineFailed` when an output holds values that are not finite."""
    rows: Rows = {}
    for output in outputs:
        for name, tensor in output.tensors.items():
            values = _comparable(tensor)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise EngineFailed(f"{name} holds values that are not finite")
            rows.setdefault(name, []).extend(values.reshape(len(values), -1))
    return rows


def save(file: Path, rows: Rows) -> None:
    """Flat values and the sizes they are cut at: rows of one output may differ in size. No pickle."""
    arrays: dict[str, np.ndarray] = {}
    for name, flats in rows.items():
        arrays[f"values {name}"] = np.concatenate(flats)
        arrays[f"sizes {name}"] = np.array([flat.size for flat in flats])
    with file.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def load(file: Path) -> Rows:
    """Raises `OSError` or `ValueError` when it is not such a file."""
    with np.load(file, allow_pickle=False) as archive:
        names = [key.removeprefix("values ") for key in archive.files if key.startswith("values ")]
        return {
            name: np.split(archive[f"values {name}"], np.cumsum(archive[f"sizes {name}"])[:-1])
            for name in names
        }


def compare(reference: Rows, candidate: Rows) -> Agreement:
    """Raises `EngineFailed` when the two do not have the same outputs of the same sizes."""
    if _shape(reference) != _shape(candidate):
        raise EngineFailed("its outputs have other names or sizes than the reference's")
    reals = [name for name, rows in reference.items() if rows[0].dtype.kind == "f"]
    vectors = [name for name in reals if max(row.size for row in reference[name]) > 1]
    cosines = [
        _cosine(*pair) for name in vectors for pair in zip(reference[name], candidate[name], strict=True)
    ]
    errors = [
        float(np.abs(one.astype(np.float64) - other).max(initial=0.0))
        for name in reals
        for one, other in zip(reference[name], candidate[name], strict=True)
    ]
    return Agreement(
        cosine_min=_rounded(min(cosines)) if cosines else None,
        cosine_mean=_rounded(float(np.mean(cosines))) if cosines else None,
        max_abs_error=float(f"{max(errors):.4g}") if errors else None,
        label_agreement=_label_agreement(reference, candidate, reals),
    )


def _label_agreement(reference: Rows, candidate: Rows, reals: Sequence[str]) -> float | None:
    discrete = [name for name in reference if name not in reals]
    if not discrete:
        return None
    same = [
        all(np.array_equal(reference[name][index], candidate[name][index]) for name in discrete)
        for index in range(len(reference[discrete[0]]))
    ]
    return _rounded(sum(same) / len(same))


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Of two zero vectors it is 1, of one zero vector 0."""
    left, right = one.astype(np.float64), other.astype(np.float64)
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    if norms == 0.0:
        return float(not left.any() and not right.any())
    return min(1.0, float(left @ right) / norms)


def _comparable(tensor: Tensor) -> np.ndarray:
    if tensor.datatype == "BYTES":
        flat = np.array(tensor.array.ravel().tolist(), "S")
        return flat.reshape(tensor.array.shape)
    if tensor.datatype == "BF16":
        return (tensor.array.astype(np.uint32) << 16).view(np.float32)
    if tensor.datatype == "FP16":
        return tensor.array.astype(np.float32)
    return tensor.array


def _shape(rows: Rows) -> dict[str, tuple[int, ...]]:
    return {name: tuple(row.size for row in flats) for name, flats in rows.items()}


def _rounded(value: float) -> float:
    return round(value, 7)
