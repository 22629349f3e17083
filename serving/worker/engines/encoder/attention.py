"""Attention over packed rows: each token attends to the tokens of its own row only.

Three ways, one result:

- *grouped*: rows of equal length form one dense block each; no mask. Best on a CPU, right everywhere.
- *variable*: one call of the flash kernel with the rows' boundaries (CUDA, half precisions).
- *masked*: one call over all tokens with a mask of equal rows; wasteful for long batches, but of fixed
  shape, which a CUDA graph needs, and right in fp32.

Where torch has a faster operator than its public function for this machine it is tested first, and left
alone where it is missing or wrong.
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


def attend_variable(
    qkv: torch.Tensor, boundaries: torch.Tensor, longest: int, heads: int, head_size: int
) -> torch.Tensor:
    """`boundaries` int32 [rows + 1] on the device; CUDA and a half precision only."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = qkv.view(-1, 3, heads, head_size).unbind(1)
    mixed = varlen_attn(query, key, value, boundaries, boundaries, longest, longest)
    assert isinstance(mixed, torch.Tensor)  # a tuple only when more was asked for
    return mixed.reshape(len(qkv), heads * head_size)


def attend_masked(qkv: torch.Tensor, row_of: torch.Tensor, heads: int, head_size: int) -> torch.Tensor:
    """`row_of` [padded] on the device: which row each token belongs to; padding is a row of its own."""
    query, key, value = qkv.view(-1, 3, heads, head_size).permute(1, 2, 0, 3)[:, None].unbind(0)
    mixed = F.scaled_dot_product_attention(query, key, value, row_of[:, None] == row_of[None])
    return mixed[0].transpose(0, 1).reshape(len(qkv), heads * head_size)


@functools.cache
def dense_attention(device_type: str, dtype: torch.dtype) -> Dense:
    """The fastest attention on one block that is right here."""
    if device_type == "cpu" and _flash_works(dtype):
        return _flash
    return F.scaled_dot_product_attention


@functools.cache
def can_vary(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the variable-length kernel runs on this device and agrees with the grouped way."""
    if device.type != "cuda" or dtype == torch.float32:
        return False
    groups = (Group(0, 2, 5), Group(10, 1, 14))
    qkv = torch.randn(24, 3 * 2 * 32, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    boundaries = torch.tensor([0, 5, 10, 24], dtype=torch.int32, device=device)
    try:
        got = attend_variable(qkv, boundaries, 14, 2, 32)
    except (ImportError, RuntimeError, NotImplementedError) as error:
        log.info("attention.not_variable", dtype=str(dtype), reason=str(error)[:200])
        return False
    expected = attend(qkv, groups, 2, 32)
    return bool(torch.allclose(got.float(), expected.float(), atol=_TOLERANCE[dtype], rtol=_TOLERANCE[dtype]))


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
