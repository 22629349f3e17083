"""Attention in whole tiles is the attention of each row by itself."""

from __future__ import annotations

import pytest
import torch

from serving.worker.engines.encoder import tiled
from serving.worker.engines.encoder.attention import attend
from serving.worker.engines.encoder.packing import Group

pytestmark = pytest.mark.torch

HEADS, HEAD_SIZE = 3, 32
CPU = torch.device("cpu")


def groups_of(*rows_and_lengths: tuple[int, int]) -> list[Group]:
    groups, start = [], 0
    for rows, length in rows_and_lengths:
        groups.append(Group(start, rows, length))
        start = groups[-1].stop
    return groups


def random_qkv(tokens: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(tokens, 3 * HEADS * HEAD_SIZE, generator=generator).to(dtype)


def attended(qkv: torch.Tensor, groups: list[Group]) -> torch.Tensor:
    return tiled.attend_tiled(qkv, tiled.pieces(groups, len(qkv)), HEADS, HEAD_SIZE)


@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.parametrize("length", [*range(1, 36), 47, 48, 49, 63, 100, 255, 257, 300])
def test_rows_of_every_length_get_what_they_get_alone(length: int, padding: int) -> None:
    groups = groups_of((5, 11), (-(-48 // length) + 1, length), (1, length + 1))
    qkv = random_qkv(groups[-1].stop + padding)
    stop = groups[-1].stop
    expected = attend(qkv, groups, HEADS, HEAD_SIZE)[:stop]
    got = attended(qkv, groups)
    torch.testing.assert_close(got[:stop], expected, atol=1e-5, rtol=1e-5)
    assert got.shape == (stop + padding, HEADS * HEAD_SIZE)


@pytest.mark.parametrize("length", [1, 5, 13, 16, 21])
@pytest.mark.parametrize("padding", [0, 2])
def test_a_row_with_nothing_around_it_is_attended_too(length: int, padding: int) -> None:
    groups = groups_of((1, length))
    qkv = random_qkv(length + padding)
    expected = attend(qkv[:length], groups, HEADS, HEAD_SIZE)
    torch.testing.assert_close(attended(qkv, groups)[:length], expected, atol=1e-5, rtol=1e-5)


def test_a_linear_layers_output_may_be_a_part_of_something_larger() -> None:
    groups = groups_of((4, 13), (2, 30))
    whole = random_qkv(groups[-1].stop + 9)
    part = whole[9:]
    expected = attend(part, groups, HEADS, HEAD_SIZE)
    torch.testing.assert_close(attended(part, groups), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_half_precisions_are_attended_in_fp32(dtype: torch.dtype, atol: float) -> None:
    groups = groups_of((4, 13), (3, 16), (1, 90))
    qkv = random_qkv(groups[-1].stop, dtype)
    got = attended(qkv, groups)
    assert got.dtype == dtype
    expected = attend(qkv.float(), groups, HEADS, HEAD_SIZE)
    torch.testing.assert_close(got.float(), expected, atol=atol, rtol=atol)


def test_keys_fill_whole_tiles_where_the_sequence_has_them() -> None:
    groups = groups_of((8, 13), (1, 33), (2, 61))
    first, second, last = tiled.pieces(groups, groups[-1].stop)
    assert (first.room, first.first_key) == (16, 0)
    assert (second.room, second.mask) == (33, None)  # a little rest
    assert (last.room, last.first_key) == (64, groups[-1].start - 3)  # nothing follows: they start earlier
    (alone,) = tiled.pieces(groups_of((1, 13)), 13)
    assert (alone.room, alone.mask) == (13, None)


def test_a_machine_without_the_kernel_attends_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "attend_tiled", lambda *_: torch.ops.aten.no_such_operator)
    assert tiled.can_tile.__wrapped__(CPU, torch.float32) is False


def test_a_kernel_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "attend_tiled", lambda qkv, *_: qkv.new_zeros(len(qkv), 64))
    assert tiled.can_tile.__wrapped__(CPU, torch.float32) is False


def test_hardware_tiles_of_bf16_are_left_to_their_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    assert tiled.can_tile.__wrapped__(CPU, torch.bfloat16) is False
    assert tiled.can_tile.__wrapped__(torch.device("cuda"), torch.float32) is False
