"""Where on this server versions may be imported from: configured directories and allowed Python packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from django.conf import settings


def import_roots() -> list[Path]:
    """`IMPORT_ROOTS`, then the directories of the installed `IMPORT_PACKAGES`; existing ones only."""
    packages = [_directory_of(name) for name in settings.IMPORT_PACKAGES]
    roots = [Path(root) for root in settings.IMPORT_ROOTS] + [root for root in packages if root is not None]
    return [root for root in roots if root.is_dir()]


def _directory_of(package: str) -> Path | None:
    """Found without importing the package: only its files are wanted."""
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    return Path(found.origin).parent if found is not None and found.origin else None
