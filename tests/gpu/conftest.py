"""Tests of this folder need a CUDA device and are skipped without one."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/gpu/" in item.path.as_posix()]
    if here and not _has_device():
        for item in here:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_device() -> bool:
    import torch

    return torch.cuda.is_available()
