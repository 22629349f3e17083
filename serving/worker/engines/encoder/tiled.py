"""Attention of packed rows on a CPU, with keys in whole tiles.

The flash kernel multiplies two small matrices for each row and head, and its product is slow when the number
of keys is no multiple of a vector: 15 keys take twice as long as 16. So groups of rows are copied, a few rows
at a time, into a block whose rows have room for whole tiles, with a mask over what is not theirs. The
copy pays for itself: it is made in one sweep, and the kernel then finds the block in the second-level cache.

Half precisions are widened to fp32 by that copy. Their own kernel takes twice as long, except where the CPU
multiplies tiles of bf16 in hardware: there bf16 is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog
import torch

from serving.worker.engines.encoder.packing import Group

log = structlog.get_logger(__name__)

TILE = 16
"""Keys: one vector of fp32 in AVX-512, two in AVX2."""
_LITTLE_REST = 2
"""With so few keys beyond a multiple of `TILE` it is faster to stop there than to fill another one."""
_LONGEST = 256
"""Tokens; in longer rows the rest is a small part."""
_PIECE_TOKENS = 128
"""Queries, keys and values of so many tokens in fp32 are half of a megabyte with MiniLM."""
_WORTH_TOKENS = 48
"""Groups of fewer tokens are left where they are: a copy is a dozen steps more, about 20 µs in each layer."""
_REMEMBERED_MASKS = 1024

_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
_GROUPS = (Group(0, 1, 5), Group(5, 10, 14), Group(145, 3, 16), Group(193, 2, 33), Group(259, 4, 40))
"""Rows that are tried: too few, more than a piece, whole tiles, a little rest, a rest."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`rows` rows of `length` tokens each, at `start` of the packed sequence."""

    start: int
    rows: int
    length: int
    is_copied: bool
    mask: torch.Tensor | None
    """[rows, 1, length, room], where rows of the copy have room for more keys than they have."""

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.length

    @property
    def room(self) -> int:
        return self.length if self.mask is None else self.mask.shape[-1]


def pieces(groups: Sequence[Group], dtype: torch.dtype) -> list[Piece] | None:
    """How to attend in every layer of a batch; None where it is not worth the steps."""
    found = [piece for group in groups for piece in _pieces(group, dtype)]
    return found if any(piece.is_copied for piece in found) else None


def attend_tiled(qkv: torch.Tensor, pieces: Sequence[Piece], heads: int, head_size: int) -> torch.Tensor:
    """[padded, 3·hidden] → [padded, hidden]; zeros behind the last row."""
    output = qkv.new_empty(len(qkv), heads * head_size)
    for piece in pieces:
        rows = qkv[piece.start : piece.stop].view(piece.rows, piece.length, 3, heads, head_size)
        mixed = _attend(_roomy(rows, piece) if piece.is_copied else rows, piece)
        output[piece.start : piece.stop].view(mixed.shape).copy_(mixed)
    output[pieces[-1].stop :] = 0.0
    return output


def _attend(rows: torch.Tensor, piece: Piece) -> torch.Tensor:
    """[rows, room, 3, heads, head size] → [rows, length, heads, head size]."""
    query, key, value = rows.permute(2, 0, 3, 1, 4).unbind(0)
    if piece.mask is not None:
        query = query[:, :, : piece.length]
    # torch's public function does the same after ~20 µs of choosing, which a small block would notice.
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    mixed: torch.Tensor = flash(query, key, value, attn_mask=piece.mask)[0]
    return mixed.transpose(1, 2)


def _roomy(rows: torch.Tensor, piece: Piece) -> torch.Tensor:
    """A copy in fp32, each row with room for whole tiles."""
    block = torch.empty((piece.rows, piece.room, *rows.shape[2:]), dtype=torch.float32)
    block[:, : piece.length].copy_(rows)
    if piece.mask is not None:
        block[:, piece.length :] = 0.0  # the memory may hold NaN, which no mask takes out
    return block


def _pieces(group: Group, dtype: torch.dtype) -> Iterator[Piece]:
    room = _room(group.length)
    is_slow = dtype != torch.float32 or (room > group.length and group.rows > 1)
    is_copied = is_slow and group.rows * group.length >= _WORTH_TOKENS
    most = max(1, _PIECE_TOKENS // group.length) if is_copied else group.rows
    for row in range(0, group.rows, most):
        rows = min(most, group.rows - row)
        has_mask = is_copied and room > group.length
        mask = _mask(group.length, room).expand(rows, 1, group.length, room) if has_mask else None
        yield Piece(group.start + row * group.length, rows, group.length, is_copied, mask)


def _room(length: int) -> int:
    """Keys that a row of `length` tokens gets."""
    rest = length % TILE
    has_little_rest = length > TILE and rest <= _LITTLE_REST
    return length if rest == 0 or has_little_rest or length > _LONGEST else length + TILE - rest


@functools.lru_cache(_REMEMBERED_MASKS)
def _mask(length: int, room: int) -> torch.Tensor:
    """What is added to the scores of `room` keys: nothing to the first `length`, to others minus infinity."""
    return torch.where(torch.arange(room) < length, 0.0, -torch.inf)


@functools.cache
def can_tile(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this way runs on the device and is right, and no other is faster."""
    if device.type != "cpu" or dtype not in _TOLERANCE or (dtype == torch.bfloat16 and _has_amx()):
        return False
    heads, head_size = 2, 32
    shape = (_GROUPS[-1].stop, 3 * heads * head_size)
    qkv = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    try:
        got = attend_tiled(qkv, pieces(_GROUPS, dtype) or [], heads, head_size)
    except (AttributeError, RuntimeError, TypeError) as error:
        log.info("attention.not_tiled", dtype=str(dtype), reason=str(error)[:200])
        return False
    expected, limit = _plainly(qkv.float(), heads, head_size), _TOLERANCE[dtype]
    return bool(torch.allclose(got.float(), expected, atol=limit, rtol=limit))


def _plainly(qkv: torch.Tensor, heads: int, head_size: int) -> torch.Tensor:
    rows = []
    for group in _GROUPS:
        block = qkv[group.start : group.stop].view(group.rows, group.length, 3, heads, head_size)
        query, key, value = block.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (query @ key.transpose(-1, -2) / head_size**0.5).softmax(-1)
        rows.append((weights @ value).transpose(1, 2).reshape(-1, heads * head_size))
    return torch.cat(rows)


def _has_amx() -> bool:
    asked = getattr(torch.cpu, "_is_amx_tile_supported", None)  # private: where it is gone, nobody has it
    return bool(asked is not None and asked())
