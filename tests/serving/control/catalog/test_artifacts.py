"""The store: content names the artifact, and it appears whole or not at all."""

from __future__ import annotations

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving.control.catalog import artifacts
from serving.digests import file_sha256
from tests.serving.control.catalog import crafting

FILES = {"config.json": b"{}", "a/b.txt": b"text"}


def store(files: dict[str, bytes], artifact_format: str = "encoder") -> artifacts.Stored:
    with artifacts.staging() as home:
        return artifacts.promote(crafting.write_tree(home / "content", files), artifact_format)


def test_the_same_content_is_one_artifact() -> None:
    assert store(FILES) == store(dict(reversed(FILES.items())))


@pytest.mark.parametrize("other", [{"config.json": b"{ }"}, {"config.txt": b"{}"}, FILES | {"c": b""}])
def test_other_names_or_bytes_are_another_artifact(other: dict[str, bytes]) -> None:
    assert store(FILES).sha256 != store(other).sha256


def test_a_single_file_is_named_by_its_own_digest(tmp_path: Path) -> None:
    stored = store({"model.pt2": b"bytes"}, "pt2")
    assert stored.sha256 == file_sha256(stored.path)
    assert stored.path.read_bytes() == b"bytes" and stored.path.name == "model.pt2"


def test_stored_files_cannot_be_written() -> None:
    stored = store(FILES)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in [stored.path, *stored.path.rglob("*")]}
    assert modes == {0o400, 0o500}


def test_registering_the_same_content_at_once_is_safe() -> None:
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(lambda _: store(FILES), range(16)))
    assert len(set(stored)) == 1
    assert {path.name for path in stored[0].path.iterdir()} == {"config.json", "a"}


def test_staging_leaves_nothing_behind_when_it_fails(store: Path) -> None:
    with pytest.raises(RuntimeError), artifacts.staging() as home:
        crafting.write_tree(home / "content", FILES)
        raise RuntimeError
    assert list((store / ".staging").iterdir()) == []


def test_what_a_dead_process_left_is_swept(store: Path) -> None:
    left = crafting.write_tree(store / ".staging" / "dead", {"content/x": b"half"})
    (left / "content").chmod(0o500)
    os.utime(left, (0, 0))
    assert artifacts.sweep(time.time()) == 1
    assert not left.exists()


def test_what_a_living_process_receives_is_not_swept() -> None:
    with artifacts.staging() as home:
        os.utime(home, (0, 0))
        assert artifacts.sweep(time.time()) == 0
        assert home.exists()


def test_registering_again_heals_a_damaged_artifact() -> None:
    stored = store({"model.safetensors": b"weights"})
    file = stored.path / "model.safetensors"
    file.chmod(0o600)
    file.write_bytes(b"WEIGHTS")
    assert store({"model.safetensors": b"weights"}) == stored
    assert file.read_bytes() == b"weights"
