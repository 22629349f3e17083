"""What a worker process is told at its start: one JSON file, written by the agent."""

from __future__ import annotations

from pathlib import Path

import msgspec

from serving.contract import SampleTensor, VersionEntry


class SpecError(ValueError):
    """The spec file is missing or is not a spec."""


class TuningSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which candidate of a tuning run this process measures, on what, and where the reference's answers are."""

    index: int
    reference: str
    """Path of a file: candidate 0 writes it, the others read it."""
    texts: tuple[str, ...] = ()
    tensors: tuple[SampleTensor, ...] = ()


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of one version, or one run of `--validate` or `--tune`, which have no address."""

    version: VersionEntry
    replica_id: str = ""
    epoch: int = 0
    address: str = ""
    """`unix:/path` or `tcp:host:port`."""
    device: str = "cpu"
    threads: int = 1
    cpu_core: int | None = None
    batch_min_share: float = 0.05
    """Part of the device's time promised to waiting work of the `batch` class."""
    attempt: int = 1
    """Of a validation; echoed in its report."""
    tuning: TuningSpec | None = None


def read(path: Path) -> WorkerSpec:
    """Raises `SpecError` saying what is wrong with the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=WorkerSpec)
    except OSError as error:
        raise SpecError(f"the spec file cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise SpecError(f"{path} is not a worker spec: {error}") from error
