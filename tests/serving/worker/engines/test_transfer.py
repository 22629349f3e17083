"""Copies arrive whole through staging that is used again and again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch


class LateCopier:
    """A device whose copies happen when they are waited for, or when the order says so: as late as may be."""

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.waits = 0

    def pinned(self, size_bytes: int) -> object:
        import torch

        self.allocated_bytes += size_bytes
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def upload(self, stage: object) -> tuple[object, Callable[[], None]]:
        import torch

        copy = torch.zeros_like(stage)  # type: ignore[call-overload]

        def wait() -> None:
            self.waits += 1
            copy.copy_(stage)

        return copy, wait

    def download(self, tensor: object) -> tuple[object, Callable[[], None]]:
        import torch

        copy = torch.zeros_like(tensor)  # type: ignore[call-overload]
        return copy, lambda: copy.copy_(tensor)


def staged(copier: LateCopier) -> object:
    from serving.worker.engines.encoder.transfer import Staged

    return Staged(copier)  # type: ignore[arg-type]


def test_a_buffer_is_used_again_only_after_its_copy() -> None:
    from serving.worker.engines.encoder.transfer import STAGES

    copier = LateCopier()
    transfer = staged(copier)
    given_arrays = [np.full(100, number, np.int64) for number in range(3 * STAGES)]
    copies = [transfer.to_device([array])[0] for array in given_arrays]  # type: ignore[attr-defined]
    for array, copy in list(zip(given_arrays, copies, strict=True))[: 2 * STAGES]:
        np.testing.assert_array_equal(copy.numpy(), array)
    assert copier.waits == 2 * STAGES and copier.allocated_bytes == STAGES * 4096


def test_buffers_grow_and_stay() -> None:
    copier = LateCopier()
    transfer = staged(copier)
    for size in (10, 5000, 10, 5000) * 8:
        transfer.to_device([np.zeros(size, np.int64)])  # type: ignore[attr-defined]
    assert copier.allocated_bytes <= 4 * (4096 + 65536)


@given(
    st.lists(
        st.tuples(st.sampled_from(["int64", "int32", "float32", "uint8"]), st.integers(0, 50)), min_size=1
    )
)
def test_arrays_of_any_kind_share_one_copy(shapes: list[tuple[str, int]]) -> None:
    from serving.worker.engines.encoder.transfer import STAGES

    transfer = staged(LateCopier())
    arrays = [np.arange(2 * size, dtype=dtype).reshape(2, size) for dtype, size in shapes]
    copies = transfer.to_device(arrays)  # type: ignore[attr-defined]
    for _ in range(STAGES):  # until the first buffer is needed again
        transfer.to_device([np.zeros(1)])  # type: ignore[attr-defined]
    for array, copy in zip(arrays, copies, strict=True):
        assert copy.numpy().dtype == array.dtype
        np.testing.assert_array_equal(copy.numpy(), array)


def test_a_result_is_whole_once_it_is_fetched() -> None:
    import torch

    fetch = staged(LateCopier()).to_host(torch.arange(6).view(2, 3))  # type: ignore[attr-defined]
    assert fetch().tolist() == [[0, 1, 2], [3, 4, 5]]
