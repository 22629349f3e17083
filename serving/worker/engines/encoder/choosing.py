"""Which execution a version gets: own packed forward, generic packed, or padded. Tried, not believed.

An architecture without a forward of ours runs random rows padded and packed in fp32, when it is loaded. It
is packed when both agree; otherwise it is padded, and the reason is kept for whoever reads the validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import structlog
import torch

from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.encoder import architectures, generic, transformer
from serving.worker.engines.encoder.generic import GenericEncoder, Unsupported
from serving.worker.engines.encoder.onnx_encoder import OnnxEncoder
from serving.worker.engines.encoder.packed import PackedEncoder
from serving.worker.engines.encoder.padded import PaddedEncoder
from serving.worker.engines.encoder.quantized import require_int8
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.torch_device import DTYPES

log = structlog.get_logger(__name__)

AnyEncoder = PackedEncoder | GenericEncoder | PaddedEncoder | OnnxEncoder

_ROWS = (5, 17, 3, 17, 40, 200, 1)
"""Lengths of the rows that are tried: some equal, one longer than usual attention windows."""
_TOLERANCE = 1e-5
"""Largest difference, relative to the largest value, at which two fp32 executions are the same."""
_COARSE_TOLERANCE = 0.05
"""The same for replaced layers in a half precision."""


def load(settings: EncoderSettings, device: torch.device) -> AnyEncoder:
    """Raises `LoadFailed` when the artifact, or an option together with it, cannot be served."""
    if settings.quantize == "int8" and settings.execution != "onnx":
        require_int8(device.type)
    wants_packed = settings.execution == "packed"
    if settings.compile and (wants_packed or settings.execution == "onnx" or settings.quantize != "none"):
        raise LoadFailed("option compile needs execution auto or padded, and no quantize")
    if settings.compile or settings.execution == "padded":
        why = "compiled once for all shapes" if settings.compile else "chosen by the option execution"
        return _padded(settings, device, why)
    shape = architectures.find(settings)
    if settings.execution == "onnx":
        return OnnxEncoder(settings, shape, device)
    if shape is not None:
        return PackedEncoder(settings, shape, device)
    return _generic_or_padded(settings, device)


def _padded(settings: EncoderSettings, device: torch.device, reason: str) -> PaddedEncoder:
    model = transformer.load(settings, DTYPES[settings.dtype]).to(device)
    encoder = _padded_or_exact(settings, model, device, reason)
    if not settings.compile:  # a compiler is no better for operators that it cannot see into
        _speed_up(settings, model, encoder)
    return encoder


def _padded_or_exact(
    settings: EncoderSettings, model: Any, device: torch.device, reason: str
) -> PaddedEncoder:
    """Some architectures look at neighbours without a mask: padding would change what they answer."""
    padded, exact = (
        _outputs(
            PaddedEncoder(replace(settings, compile=False), model, device, "", is_exact=is_exact), settings
        )
        for is_exact in (False, True)
    )
    limit = _TOLERANCE if settings.dtype == "fp32" else _COARSE_TOLERANCE
    is_exact = _difference(padded, exact) > limit
    return PaddedEncoder(settings, model, device, reason, is_exact=is_exact)


def _generic_or_padded(settings: EncoderSettings, device: torch.device) -> AnyEncoder:
    model = transformer.load(settings, torch.float32).to(device)
    plain = model.config._attn_implementation
    encoder: AnyEncoder
    try:
        encoder = _proven(settings, model, device)
    except Unsupported as error:
        reason = f"{settings.model_type} does not run packed ({error})"
        if settings.execution == "packed":
            raise LoadFailed(f"option execution=packed: {reason}") from error
        log.info("encoder.not_packed", model_type=settings.model_type, reason=str(error))
        model.set_attn_implementation(plain)
        encoder = _padded_or_exact(settings, model, device, reason)
    model.to(DTYPES[settings.dtype])
    _speed_up(settings, model, encoder)
    return encoder


def _proven(settings: EncoderSettings, model: Any, device: torch.device) -> GenericEncoder:
    """Raises `Unsupported` with what went wrong first when packed execution is not the same."""
    expected = _outputs(PaddedEncoder(settings, model, device, "", is_exact=True), settings)
    worst = np.inf
    for offset in generic.offsets(model):
        try:
            encoder = GenericEncoder(settings, model, device, offset)
            got = _outputs(encoder, settings)
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            text = (str(error).splitlines() or [""])[0][:200]
            raise Unsupported(f"{type(error).__name__}: {text}") from error
        worst = min(worst, _difference(got, expected))
        if worst <= _TOLERANCE:
            log.info("encoder.packed", model_type=settings.model_type, position_offset=offset)
            return encoder
    raise Unsupported(f"its outputs differ from padded execution by {worst:.1g}")


def _speed_up(settings: EncoderSettings, model: Any, encoder: AnyEncoder) -> None:
    """Faster linear layers, unless they break this model; quantised ones may differ as they do."""
    if next(model.parameters()).device.type != "cpu":
        return
    expected = _outputs(encoder, settings)
    restore = transformer.replace_linears(model, settings.quantize)
    if settings.quantize != "none":
        return
    limit = _TOLERANCE if settings.dtype == "fp32" else _COARSE_TOLERANCE
    try:
        problem = _difference(_outputs(encoder, settings), expected)
    except (RuntimeError, TypeError, AttributeError) as error:
        log.info("encoder.plain_linears", reason=str(error)[:200])
        problem = np.inf
    if problem > limit:
        log.info("encoder.plain_linears", difference=float(problem))
        restore()


def _outputs(encoder: AnyEncoder, settings: EncoderSettings) -> np.ndarray:
    """[rows, numbers] of the rows that are tried."""
    rows = list(_random_rows(settings, encoder.vocabulary))
    run = encoder.run(rows, [len(row) for row in rows])
    while True:
        try:
            next(run)
        except StopIteration as stop:
            name = "logits" if settings.task == "classification" else "embedding"
            array: np.ndarray = stop.value[name].array
            return array


def _random_rows(settings: EncoderSettings, vocabulary: int) -> Iterator[np.ndarray]:
    """Any ids but the padding's, which some architectures treat as if it were not there."""
    generator = np.random.default_rng(0)
    padding = settings.config.get("pad_token_id")
    ids = np.setdiff1d(np.arange(min(vocabulary, 1000)), [padding if padding is not None else -1])
    for length in _ROWS:
        yield generator.choice(ids, min(length, settings.max_tokens))


def _difference(got: np.ndarray, expected: np.ndarray) -> float:
    worst = float(np.abs(got - expected).max() / max(1e-3, np.abs(expected).max()))
    return worst if np.isfinite(worst) else np.inf
