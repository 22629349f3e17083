"""A store of this test's own, a directory that imports are allowed from, and a model to register under."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from serving.control.catalog import actions
from serving.control.catalog.models import Model, Version
from tenants.actors import Actor
from tests.serving.control.catalog import crafting


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> Path:
    settings.ARTIFACTS_DIR = tmp_path / "artifacts"
    return settings.ARTIFACTS_DIR


@pytest.fixture
def imports(settings: Any, tmp_path: Path) -> Path:
    root = tmp_path / "imports"
    root.mkdir()
    settings.IMPORT_ROOTS = [root]
    settings.IMPORT_PACKAGES = []
    return root


@pytest.fixture
def model(db: None, operator: Actor) -> Model:
    return actions.create_model(by=operator, name="minilm")


@pytest.fixture
def register(model: Model, operator: Actor) -> Callable[..., Version]:
    """Register an upload of these bytes; a small encoder unless told otherwise."""

    def register(raw: bytes | None = None, *, engine: str = "encoder", **changed: Any) -> Version:
        upload = SimpleUploadedFile("model.zip", crafting.zip_of(crafting.encoder()) if raw is None else raw)
        values = {"by": operator, "model": model, "source": upload, "engine": engine} | changed
        return actions.register_version(**values)

    return register
