"""Files that changed on disk are not served, and the reason says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from serving.contract import VersionEntry
from serving.digests import digest
from serving.worker.artifact import verify
from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.python import PythonEngine
from serving.worker.spec import WorkerSpec
from serving.worker.validate import validate


@pytest.fixture
def version(tmp_path: Path) -> VersionEntry:
    home = tmp_path / "artifact"
    (home / "code").mkdir(parents=True)
    (home / "model.py").write_text("def load(): ...")
    (home / "code" / "weights.bin").write_bytes(b"\0" * 64)
    return VersionEntry(
        id="mv_a",
        model="m",
        number=1,
        engine="python",
        artifact_sha256=digest(home).sha256,
        artifact_path=str(home),
    )


def test_untouched_files_are_loaded(version: VersionEntry) -> None:
    verify(version)


@pytest.mark.parametrize("change", ["edited", "added", "removed", "gone"])
def test_changed_files_are_refused(version: VersionEntry, change: str) -> None:
    home = Path(version.artifact_path)
    match change:
        case "edited":
            (home / "model.py").write_text("import os; os.abort()")
        case "added":
            (home / "code" / "more.py").write_text("")
        case "removed":
            (home / "code" / "weights.bin").unlink()
        case "gone":
            home.rename(home.with_name("elsewhere"))
    with pytest.raises(LoadFailed, match="not on this host" if change == "gone" else "were changed"):
        verify(version)


@pytest.mark.torch
def test_validation_of_changed_files_fails_with_the_reason_and_runs_none_of_them(
    version: VersionEntry, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"
    (Path(version.artifact_path) / "model.py").write_text(f"open({str(trace)!r}, 'w')")
    report = validate(WorkerSpec(version=version))
    assert (report.ok, trace.exists()) == (False, False)
    assert "were changed since it was registered" in report.reason


@pytest.mark.torch
def test_running_a_model_leaves_its_artifact_as_it_was(
    version: VersionEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled files beside the code would be a change, and root may write them."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    home = Path(version.artifact_path)
    (home / "model.py").write_text("import beside_it\nclass Model: ...")
    (home / "beside_it.py").write_text("")
    before = digest(home)
    with pytest.raises(LoadFailed):
        PythonEngine(home, {}).load()
    assert digest(home) == before
