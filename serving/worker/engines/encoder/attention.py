"""Attention over packed rows: each token attends to the tokens of its own row only.

Rows of equal length form one dense block, so no mask is ever built. Where torch has a faster operator
than its public function for this machine it is tested first, and left alone where it is missing or wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import structlog
import torch
import torch.nn.functional as F

from serving.worker.engines.encoder.packing import Group

log = structlog.get_logger(__name__)

_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}

Dense = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(query, key, value), each [rows, heads, length, head size] → the same shape."""


def attend(qkv: torch.Tensor, groups: Sequence[Group], heads: int, head_size: int) -> torch.Tensor:
    """[padded, 3·hidden] → [padded, hidden]; what follows the last row is anything finite."""
    dense = dense_attention(qkv.device.type, qkv.dtype)
    hidden = heads * head_size
    outputs = []
    for group in groups:
        block = qkv[group.start : group.stop].view(group.rows, group.length, 3, heads, head_size)
        query, key, value = block.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = dense(query, key, value)
        outputs.append(mixed.transpose(1, 2).reshape(group.rows * group.length, hidden))
    stop = groups[-1].stop
    if stop < qkv.shape[0]:
        outputs.append(qkv[stop:, :hidden])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


@functools.cache
def dense_attention(device_type: str, dtype: torch.dtype) -> Dense:
    """The fastest attention on one block that is right here."""
    if device_type == "cpu" and _flash_works(dtype):
        return _flash
    return F.scaled_dot_product_attention


def _flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    # torch's public function does the same after ~20 µs of choosing, which a small block would notice.
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value)[0]


def _flash_works(dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, 13, 32, generator=generator).to(dtype).unbind(0)
    scores = (query.float() @ key.float().transpose(-1, -2)) / query.shape[-1] ** 0.5
    expected = scores.softmax(-1) @ value.float()
    try:
        got = _flash(query, key, value)
    except (AttributeError, RuntimeError) as error:
        log.info("attention.no_flash", dtype=str(dtype), reason=str(error)[:200])
        return False
    return bool(torch.allclose(got.float(), expected, atol=_TOLERANCE[dtype], rtol=_TOLERANCE[dtype]))
