"""Set-up of a bare checkout: what it says when it cannot go on, and what it never does twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import bootstrap, frontend

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("printed", "advice"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk is full",
        ),
        ("ERROR: [Errno 13] Permission denied: '/opt/x'", "no write access"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)'", "package index"),
        ("npm error code ENOTFOUND", "package index"),
        ("ERROR: No matching distribution found for Django==5.2.19", "package index"),
    ],
)
def test_known_failures_come_with_what_to_do(printed: str, advice: str):
    assert advice in bootstrap.cause_of(printed)


def test_an_unknown_failure_gets_no_made_up_advice():
    assert bootstrap.cause_of("Segmentation fault") == ""


def test_only_a_too_old_python_is_refused_naming_what_was_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap, "version_of", lambda python: (3, 9))
    with pytest.raises(bootstrap.Failed, match=r"3\.11 to 3\.13; found only: .* is 3\.9"):
        bootstrap.find_python()


def test_a_version_managers_empty_shim_is_no_python(tmp_path: Path):
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\necho 'version not installed' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert bootstrap.version_of(str(shim)) is None


def test_a_missing_venv_module_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / "venv")
    monkeypatch.setattr(bootstrap, "run", lambda command, quiet=False: (1, "No module named ensurepip"))
    with pytest.raises(bootstrap.Failed, match="apt install python3-venv"):
        bootstrap.create_without_ensurepip("python3")


def test_installed_requirements_are_not_installed_again_until_they_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name in (
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-onnx.txt",
        "requirements-bench.txt",
        "requirements-otel.txt",
    ):
        (tmp_path / name).write_text("a==1\n")
    ran: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "run", lambda command, quiet=False: (ran.append(command), (0, ""))[1])
    bootstrap.install("requirements-dev.txt")
    bootstrap.install("requirements-dev.txt")
    bootstrap.install("requirements.txt")  # the development list contains it
    assert len(ran) == 1
    (tmp_path / "requirements.txt").write_text("a==2\n")
    bootstrap.install("requirements.txt")
    assert len(ran) == 2


def test_a_failed_install_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "run", lambda command, quiet=False: (1, "No space left on device"))
    for _ in range(2):
        with pytest.raises(bootstrap.Failed, match="disk is full"):
            bootstrap.install("requirements.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_write_access_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    tmp_path.chmod(0o500)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    with pytest.raises(bootstrap.Failed, match="no write access"):
        bootstrap.require_write_access()


def test_bootstrap_can_be_read_by_an_old_python():
    """It must live to say that the Python is too old: nothing newer than 3.7 in its grammar."""
    import ast

    ast.parse((ROOT / "deploy" / "bootstrap.py").read_text(), feature_version=(3, 7))


def test_the_lock_file_names_no_registry():
    lock = json.loads((ROOT / "package-lock.json").read_text())
    packages = [entry for name, entry in lock["packages"].items() if name]
    assert all("resolved" not in entry and entry["integrity"].startswith("sha512-") for entry in packages)


def test_copied_files_lose_their_source_map_comment_and_nothing_else(tmp_path: Path):
    for source in frontend.FILES:
        path = tmp_path / "packages" / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("code();\n//# sourceMappingURL=x.map\n")
    frontend.copy(tmp_path / "packages", tmp_path / "vendor")
    for target in frontend.FILES.values():
        assert (tmp_path / "vendor" / target).read_text().strip() == "code();"


def test_make_lists_its_commands():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("demo", "up", "test", "test-fast", "check", "clean"):
        assert f"\n{command} " in f"\n{listed}"


def test_the_ci_script_can_be_run():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)
    assert sys.version_info >= (3, 11)
