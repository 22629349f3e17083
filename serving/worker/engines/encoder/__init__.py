"""Transformers encoders: embeddings and classification."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from serving.worker.engines.encoder.engine import EncoderEngine


def create(
    path: Path, options: Mapping[str, str | int | float | bool], *, device: str, threads: int
) -> EncoderEngine:
    """An encoder engine, not yet loaded."""
    return EncoderEngine(path, options, device=device, threads=threads)
