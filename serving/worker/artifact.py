"""What an artifact is on this host: loaded only while it is what its version was registered with."""

from __future__ import annotations

from pathlib import Path

from serving.contract import VersionEntry
from serving.digests import digest
from serving.worker.engines.contract import LoadFailed


def verify(version: VersionEntry) -> None:
    """Raises `LoadFailed` when the files are missing, unreadable, or not those whose digest the version names."""
    if not version.artifact_sha256 or version.engine == "echo":
        return
    path = Path(version.artifact_path)
    if not path.exists():
        raise LoadFailed(f"the artifact {version.artifact_sha256[:12]} is not on this host ({path})")
    try:
        found = digest(path).sha256
    except OSError as error:
        raise LoadFailed(f"the artifact {version.artifact_sha256[:12]} cannot be read: {error}") from error
    if found != version.artifact_sha256:
        raise LoadFailed(
            f"the files of artifact {version.artifact_sha256[:12]} were changed since it was registered;"
            " register the version again"
        )


def only_file(path: Path, suffix: str, what: str) -> Path:
    """An artifact's one file, `what` for a person. Raises `LoadFailed`."""
    files = [path] if path.is_file() else sorted(path.glob(f"*{suffix}"))
    if len(files) != 1 or files[0].suffix != suffix:
        found = ", ".join(file.name for file in files) or "none"
        raise LoadFailed(f"the {what} ({suffix}), found: {found}")
    return files[0]
