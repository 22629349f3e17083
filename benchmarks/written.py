"""The files a measurement leaves: each kind keeps its own data, RESULTS.md tells of the newest of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks import plots, report, survival
from benchmarks.results import Results
from benchmarks.survival import Drill, Soak

HERE = Path(__file__).resolve().parent


def keep(name: str, data: Any, directory: Path = HERE) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.encode(data)
    (directory / f"{name}.json").write_bytes(msgspec.json.format(encoded) + b"\n")


def kept(name: str, kind: Any, directory: Path) -> Any:
    path = directory / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None


def write(directory: Path = HERE) -> None:
    """RESULTS.md and its pictures, from what is kept there."""
    results = kept("results", Results, directory)
    if results is None:
        return
    pictures = plots.draw(results, directory) if plots.is_possible() else []
    drilled = kept("drills", list[Drill], directory) or []
    soaked = kept("soak", Soak, directory)
    lines = [*survival.drills(drilled), *(survival.soak(soaked) if soaked else [])]
    text = report.markdown(results, pictures=pictures, also=survival.promises(drilled), more=lines)
    (directory / "RESULTS.md").write_text(text)
