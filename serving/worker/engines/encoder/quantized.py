"""Linear layers in 8 bits for the CPU: weights quantised once, activations as they come.

Weights are symmetric per output channel. Activations are asymmetric per token (one scale and one offset for
each row of the matrix), because a single token with a large value would cost all others their resolution:
on MiniLM the cosine to fp32 is at least 0.995 this way and 0.95 with one scale for the whole batch (Yao et
al., ZeroQuant, 2022). With x ≈ lo + s·q, y = x·Wᵀ + b = s·(q·Wᵀ) + lo·(sums of W's rows) + b.

The integer product is an operator that torch keeps for its own compiler: it is tested before use.
"""

from __future__ import annotations

import functools

import structlog
import torch
import torch.nn.functional as F

from serving.worker.engines.contract import LoadFailed

log = structlog.get_logger(__name__)

_LEVELS = 255.0
_MIDDLE = 128.0
_SIGN_BIT = -128
_TINY = 1e-12
_TOLERANCE = 0.02
"""Relative error of a quantised layer on random numbers; it is about 0.006."""


class Int8Linear:
    """y = x·Wᵀ + b on [tokens, in]; create through `linear.linear`, which refuses where it does not work."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, gelu: str) -> None:
        weight = weight.float()
        self._gelu = gelu
        self._bias = bias.float()
        self._scales = (weight.abs().amax(1) / 127.0).clamp_min(_TINY)
        levels = (weight / self._scales[:, None]).round().to(torch.int8)
        self._column_sums = (levels.sum(1, dtype=torch.float32) * self._scales)[None]
        self._zeros = torch.zeros(len(bias), dtype=torch.int64)
        self._weight = torch.ops.onednn.qlinear_prepack(levels, None)
        self._multiply = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._exact(x).to(x.dtype)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self._exact(x), approximate=self._gelu).to(x.dtype)

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self._exact(x).add_(residual).to(x.dtype)

    def _exact(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, out] in fp32."""
        x = x.float()
        # Many small steps on purpose: torch runs each of them several times faster than its fused forms.
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        scale = (high - low).mul_(1.0 / _LEVELS).clamp_min_(_TINY)
        middle = low + scale * _MIDDLE
        levels = x.sub(middle).mul_(scale.reciprocal()).round_().to(torch.int8)
        # oneDNN has fast kernels for unsigned activations only: add 128 by turning the sign bit over.
        unsigned = levels.bitwise_xor_(_SIGN_BIT).view(torch.uint8)
        product = self._multiply(
            unsigned,
            1.0,
            0,
            self._weight,
            self._scales,
            self._zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return product.mul_(scale).add_(torch.addmm(self._bias, low, self._column_sums))


def require_int8(device_type: str) -> None:
    """Raises `LoadFailed` where int8 layers do not run."""
    if device_type != "cpu":
        raise LoadFailed("option quantize=int8 is for the CPU; on a GPU choose dtype bf16 or fp16")
    if not can_quantize():
        raise LoadFailed("option quantize=int8 needs a build of torch with oneDNN's integer products")


@functools.cache
def can_quantize() -> bool:
    """Whether the private operators exist and agree with the plain layer on this machine."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((24, 96), (64, 96), (64,)))
    expected = F.linear(x, weight, bias)
    try:
        got = Int8Linear(weight, bias, "none")(x)
    except (AttributeError, RuntimeError) as error:
        log.info("linear.not_quantized", reason=str(error)[:200])
        return False
    return bool((got - expected).norm() < _TOLERANCE * expected.norm())
