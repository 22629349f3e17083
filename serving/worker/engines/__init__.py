"""Engines: the only place that imports torch, and each only what it needs."""

from __future__ import annotations

from pathlib import Path

from serving.contract import VersionEntry
from serving.worker.engines.contract import Engine, LoadFailed


def create(version: VersionEntry, device: str = "cpu", threads: int = 1) -> Engine:
    """The engine of a version, not yet loaded. Raises `LoadFailed` for an engine we do not have."""
    options, path = version.options, Path(version.artifact_path)
    match version.engine:
        case "echo":
            from serving.worker.engines.echo import EchoEngine

            return EchoEngine(
                max_batch_rows=int(options.get("max_batch_rows", 256)),
                sleep_us=int(options.get("sleep_us", 0)),
                chunks=int(options.get("chunks", 1)),
                chunk_us=int(options.get("chunk_us", 0)),
                is_text=bool(options.get("text", False)),
            )
        case "encoder":
            from serving.worker.engines import encoder

            return encoder.create(path, options, device=device, threads=threads)
        case "tensor":
            from serving.worker.engines.tensor import TensorEngine

            return TensorEngine(path, options, device=device, threads=threads)
        case "onnx":
            from serving.worker.engines.onnx import OnnxEngine

            return OnnxEngine(path, options, device=device, threads=threads)
        case "python":
            from serving.worker.engines.python import PythonEngine

            return PythonEngine(path, options, device=device)
    raise LoadFailed(f"no engine named {version.engine!r}")
