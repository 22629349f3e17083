"""The digest that names an artifact: the store computes it, and workers hold what they load against it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Digest:
    sha256: str
    size_bytes: int
    file_count: int


def digest(content: Path) -> Digest:
    """Of one file, or of a directory's sorted manifest of files. Raises `OSError` when it cannot be read."""
    if content.is_file():
        return Digest(file_sha256(content), content.stat().st_size, 1)
    manifest = hashlib.sha256()
    size_bytes = file_count = 0
    for name, file in sorted((str(f.relative_to(content)), f) for f in content.rglob("*") if f.is_file()):
        length = file.stat().st_size
        manifest.update(f"{file_sha256(file)} {length} {name}\n".encode())
        size_bytes += length
        file_count += 1
    return Digest(manifest.hexdigest(), size_bytes, file_count)


def file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
