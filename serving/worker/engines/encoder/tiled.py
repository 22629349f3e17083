"""Attention of packed rows on a CPU, with keys in whole tiles.

The flash kernel multiplies two small matrices for each row and head, and its product is slow when the number
of keys is no multiple of a vector: 15 keys take twice as long as 16. So a row is given keys up to the next
whole tile, and those that are not its own are taken out by a mask. They are its neighbours' in the packed
sequence: nothing is copied, all rows of a length are one view of it, in which rows overlap.

What is not finite goes through a mask. Whoever calls must look for it in what comes out, and attend the rows
apart from each other when it is there.

Half precisions are widened to fp32 first. Their own kernel takes twice as long, except where the CPU
multiplies tiles of bf16 in hardware: there bf16 is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
_REMEMBERED_MASKS = 4096

_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
_GROUPS = (Group(0, 1, 5), Group(5, 10, 14), Group(145, 3, 16), Group(193, 2, 33), Group(259, 4, 40))
"""Rows that are tried: alone, many, whole tiles, a little rest, the last ones."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A group of rows, and which keys each gets."""

    group: Group
    first_key: int
    """Where the keys of the first row start: there, or before it where too little follows the last row."""
    room: int
    """Keys of a row."""
    mask: torch.Tensor | None
    """[rows, 1, length, room], where rows have room for more keys than they have."""


def pieces(groups: Sequence[Group], tokens: int) -> list[Piece]:
    """How to attend in every layer of a batch of so many tokens, padding included."""
    return [_piece(group, tokens) for group in groups]


def attend_tiled(qkv: torch.Tensor, pieces: Sequence[Piece], heads: int, head_size: int) -> torch.Tensor:
    """[padded, 3·hidden] → [padded, hidden]; what follows the last row is anything finite."""
    wide = qkv if qkv.dtype == torch.float32 else qkv.float()
    mixed = [_attend(wide, piece, heads, head_size) for piece in pieces]
    stop = pieces[-1].group.stop
    if stop < len(qkv):
        mixed.append(wide[stop:, : heads * head_size])
    joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
    return joined if qkv.dtype == torch.float32 else joined.to(qkv.dtype)


def _attend(qkv: torch.Tensor, piece: Piece, heads: int, head_size: int) -> torch.Tensor:
    """[tokens, 3·hidden] → [tokens of the piece, hidden]. Each view is one step: small blocks notice more."""
    group, width, hidden = piece.group, 3 * heads * head_size, heads * head_size
    rows, length = group.rows, group.length
    strides = (length * width, head_size, width, 1)
    of_keys = (rows, heads, piece.room, head_size)
    at = qkv.storage_offset()
    keys_at = at + piece.first_key * width + hidden
    query = qkv.as_strided((rows, heads, length, head_size), strides, at + group.start * width)
    key, value = (qkv.as_strided(of_keys, strides, each) for each in (keys_at, keys_at + hidden))
    # torch's public function does the same after ~20 µs of choosing, which a small block would notice.
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    mixed: torch.Tensor = flash(query, key, value, attn_mask=piece.mask)[0]
    return mixed.transpose(1, 2).reshape(rows * length, hidden)


def _piece(group: Group, tokens: int) -> Piece:
    room = _room(group.length)
    missing = max(0, group.stop - group.length + room - tokens)
    if room == group.length or missing > group.start:
        return Piece(group, group.start, group.length, None)
    mask = _mask(group.length, room, missing).expand(group.rows, 1, group.length, room)
    return Piece(group, group.start - missing, room, mask)


def _room(length: int) -> int:
    """Keys that a row of `length` tokens gets."""
    rest = length % TILE
    has_little_rest = length > TILE and rest <= _LITTLE_REST
    return length if rest == 0 or has_little_rest or length > _LONGEST else length + TILE - rest


@functools.lru_cache(_REMEMBERED_MASKS)
def _mask(length: int, room: int, before: int) -> torch.Tensor:
    """What is added to the scores of `room` keys: minus infinity, but nothing to `length` after `before`."""
    keys = torch.arange(room)
    return torch.where((keys >= before) & (keys < before + length), 0.0, -torch.inf)


@functools.cache
def can_tile(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this way runs on the device and is right, and no other is faster."""
    if device.type != "cpu" or dtype not in _TOLERANCE or (dtype == torch.bfloat16 and _has_amx()):
        return False
    heads, head_size = 2, 32
    shape = (_GROUPS[-1].stop, 3 * heads * head_size)
    qkv = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    try:
        got = attend_tiled(qkv, pieces(_GROUPS, len(qkv)), heads, head_size)
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
