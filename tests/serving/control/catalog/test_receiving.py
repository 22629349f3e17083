"""What arrives becomes plain files below one directory, or is refused and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from hypothesis import given
from hypothesis import strategies as st

from serving.control.catalog import receiving
from serving.control.catalog.refusal import Refused
from tests.serving.control.catalog import crafting
from tests.serving.control.catalog.crafting import tar_entry, tar_of, zip_of

LIMIT_BYTES = 64 << 20


def receive(home: Path, raw: bytes, limit_bytes: int = LIMIT_BYTES) -> dict[str, bytes]:
    home.mkdir(exist_ok=True)
    content = receiving.receive_upload(SimpleUploadedFile("upload", raw), home, limit_bytes)
    return {str(f.relative_to(content)): f.read_bytes() for f in content.rglob("*") if f.is_file()}


def refusal(home: Path, raw: bytes, limit_bytes: int = LIMIT_BYTES) -> str:
    with pytest.raises(Refused) as caught:
        receive(home, raw, limit_bytes)
    return str(caught.value)


FILES = {"config.json": b"{}", "1_Pooling/config.json": b"{}"}


@pytest.mark.parametrize("raw", [zip_of(FILES), tar_of(FILES), tar_of(FILES, mode="w:")])
def test_archives_of_a_directory_are_unpacked(tmp_path: Path, raw: bytes) -> None:
    assert receive(tmp_path / "home", raw) == FILES


def test_a_folder_around_everything_is_taken_off(tmp_path: Path) -> None:
    wrapped = {f"minilm/{name}": raw for name, raw in FILES.items()}
    assert receive(tmp_path / "home", zip_of(wrapped)) == FILES


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/etc/evil", "a\\..\\evil", "a\0b", "x" * 300, "/".join("abcdefghijklmn")],
)
def test_members_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    refusal(tmp_path / "zip", zip_of({"ok": b"", name.replace("\0", "\1"): b"x"}))
    refusal(tmp_path / "tar", tar_of({"ok": b"", name.replace("\0", "\1"): b"x"}))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "special",
    [
        tar_entry("link", tarfile.SYMTYPE, "/etc/passwd"),
        tar_entry("hard", tarfile.LNKTYPE, "config.json"),
        tar_entry("null", tarfile.CHRTYPE),
        tar_entry("disk", tarfile.BLKTYPE),
        tar_entry("pipe", tarfile.FIFOTYPE),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, special: tarfile.TarInfo) -> None:
    assert "link, device" in refusal(tmp_path / "home", tar_of(FILES, special))


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    assert "link" in refusal(tmp_path / "home", crafting.zip_with_link("a", "/etc/passwd"))


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "two members" in refusal(tmp_path / "home", zip_of({"Config.json": b"1", "config.json": b"2"}))


def test_a_file_that_is_also_a_directory_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "home", zip_of({"a": b"1", "a/b": b"2"}))


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_a_bomb_stops_at_an_implausible_ratio(tmp_path: Path, pack: object) -> None:
    raw = pack({"zeros": bytes(40 << 20)})  # type: ignore[operator]
    assert len(raw) < 1 << 20
    assert "times its size" in refusal(tmp_path / "home", raw, limit_bytes=1 << 40)


def test_more_bytes_than_allowed_are_refused_whatever_the_headers_say(tmp_path: Path) -> None:
    assert "larger" in refusal(tmp_path / "home", zip_of({"a": os.urandom(3000)}), limit_bytes=4000 - 1500)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = {f"f{i}": b"" for i in range(receiving.MAX_FILES + 1)}
    assert "files" in refusal(tmp_path / "home", zip_of(files))


def test_a_tar_header_of_any_length_is_not_read_into_memory(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 30
    assert "header" in refusal(tmp_path / "home", entry.tobuf(tarfile.USTAR_FORMAT) + bytes(10_240))


def test_encrypted_and_unusual_zips_are_refused(tmp_path: Path) -> None:
    assert "deflate" in refusal(tmp_path / "home", zip_of(FILES, zipfile.ZIP_BZIP2))


def test_a_zip_member_without_a_name_is_refused(tmp_path: Path) -> None:
    name = next(iter(FILES)).encode()
    assert "damaged" in refusal(tmp_path / "home", zip_of(FILES).replace(name, b"\0" + name[1:]))


@given(position=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255), is_tar=st.booleans())
def test_a_damaged_archive_is_unpacked_or_refused(
    position: int, byte: int, is_tar: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = bytearray(tar_of(FILES, mode="w:") if is_tar else zip_of(FILES))
    raw[position % len(raw)] = byte
    home = tmp_path_factory.mktemp("d")
    with contextlib.suppress(Refused):
        receive(home, bytes(raw))
    outside = {path.name for path in home.iterdir()} - {"upload", "content", "upload.tar"}
    assert not outside


# ---------------------------------------------------------------- server-side paths


def copy(source: Path, root: Path, home: Path) -> dict[str, bytes]:
    home.mkdir(exist_ok=True)
    content = receiving.copy_path(source, [root], home, LIMIT_BYTES)
    return {str(f.relative_to(content)): f.read_bytes() for f in content.rglob("*") if f.is_file()}


def test_a_directory_inside_the_roots_is_copied(imports: Path, tmp_path: Path) -> None:
    crafting.write_tree(imports / "m", FILES)
    assert copy(imports / "m", imports, tmp_path / "home") == FILES


def test_links_inside_the_root_are_resolved(imports: Path, tmp_path: Path) -> None:
    """The layout of the Hugging Face cache: a snapshot of links to blobs beside it."""
    crafting.write_tree(imports / "blobs", {"abc": b"{}"})
    (imports / "snapshot").mkdir()
    (imports / "snapshot" / "config.json").symlink_to("../blobs/abc")
    assert copy(imports / "snapshot", imports, tmp_path / "home") == {"config.json": b"{}"}
    assert not (tmp_path / "home" / "content" / "config.json").is_symlink()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "/etc"])
def test_links_out_of_the_root_are_refused(imports: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    crafting.write_tree(imports / "m", FILES)
    (imports / "m" / "extra.txt").symlink_to(target)
    with pytest.raises(Refused, match="outside the import directory"):
        copy(imports / "m", imports, tmp_path / "home")


@pytest.mark.parametrize("source", ["..", "m/../../elsewhere", "/etc"])
def test_paths_outside_the_roots_are_refused(imports: Path, tmp_path: Path, source: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (imports / "m").mkdir()
    with pytest.raises(Refused, match="outside the directories"):
        copy(imports / source, imports, tmp_path / "home")


def test_a_circle_of_links_is_refused(imports: Path, tmp_path: Path) -> None:
    (imports / "m").mkdir()
    (imports / "m" / "again").symlink_to(".")
    with pytest.raises(Refused):
        copy(imports / "m", imports, tmp_path / "home")


def test_a_pipe_is_refused(imports: Path, tmp_path: Path) -> None:
    (imports / "m").mkdir()
    os.mkfifo(imports / "m" / "pipe")
    with pytest.raises(Refused, match="neither a file"):
        copy(imports / "m", imports, tmp_path / "home")
