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
    pieces = tiled.pieces(groups, qkv.dtype)
    assert pieces is not None
    return tiled.attend_tiled(qkv, pieces, HEADS, HEAD_SIZE)


@pytest.mark.parametrize("length", [*range(1, 36), 47, 48, 49, 63, 100, 255, 257, 300])
def test_rows_of_every_length_get_what_they_get_alone(length: int) -> None:
    groups = groups_of((5, 11), (-(-48 // length) + 1, length), (1, length + 1))
    qkv = random_qkv(groups[-1].stop + 7)
    expected = attend(qkv, groups, HEADS, HEAD_SIZE)
    got = attended(qkv, groups)
    stop = groups[-1].stop
    torch.testing.assert_close(got[:stop], expected[:stop], atol=1e-5, rtol=1e-5)
    assert not got[stop:].any()


@pytest.mark.parametrize(("dtype", "atol"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_half_precisions_are_attended_in_fp32(dtype: torch.dtype, atol: float) -> None:
    groups = groups_of((4, 13), (3, 16), (1, 90))
    qkv = random_qkv(groups[-1].stop, dtype)
    got = attended(qkv, groups)
    assert got.dtype == dtype
    expected = attend(qkv.float(), groups, HEADS, HEAD_SIZE)
    torch.testing.assert_close(got.float(), expected, atol=atol, rtol=atol)


def test_a_row_of_numbers_that_are_not_finite_spoils_itself_only() -> None:
    groups = groups_of((8, 13))
    qkv = random_qkv(104)
    expected = attend(qkv, groups, HEADS, HEAD_SIZE)
    qkv[26:39] = torch.nan
    got = attended(qkv, groups)
    assert got[26:39].isnan().all()
    kept = torch.cat([got[:26], got[39:]])
    torch.testing.assert_close(kept, torch.cat([expected[:26], expected[39:]]), atol=1e-5, rtol=1e-5)


def test_a_large_group_is_copied_in_pieces() -> None:
    pieces = tiled.pieces(groups_of((100, 13)), torch.float32)
    assert pieces is not None
    assert sum(piece.rows for piece in pieces) == 100
    assert max(piece.rows * piece.length for piece in pieces) <= 128


@pytest.mark.parametrize("groups", [groups_of((1, 13)), groups_of((3, 13)), groups_of((1, 61), (9, 32))])
def test_what_no_copy_would_speed_up_stays_where_it_is(groups: list[Group]) -> None:
    assert tiled.pieces(groups, torch.float32) is None


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
