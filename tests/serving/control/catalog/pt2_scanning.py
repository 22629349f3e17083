"""How tests scan a `.pt2` archive, and change the program inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import pt2

Change = Callable[[dict[str, Any]], None]


def scan(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "model.pt2"
    file.write_bytes(raw)
    pt2.scan(file)


def refusal(tmp_path: Path, raw: bytes) -> str:
    with pytest.raises(Refused) as caught:
        scan(tmp_path, raw)
    return str(caught.value)


def node_of(document: dict[str, Any]) -> dict[str, Any]:
    return document["graph_module"]["graph"]["nodes"][0]
