"""Bringing a stranger's files into staging: uploads and server-side paths, bounded in every direction.

What arrives is always plain files below one directory: no links, no devices, no absolute or climbing
paths, no two members of one name, no more bytes than allowed, whatever an archive says about itself.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from serving.control.catalog.artifacts import SINGLE_FILES
from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import pt2

MAX_FILES = 2_000
MAX_PATH_CHARS = 240
MAX_NAME_BYTES = 200
MAX_DEPTH = 12
MAX_RATIO = 100
MAX_DIRECTORY_BYTES = 8 << 20
MAX_HEADER_BYTES = 64 << 10
_RATIO_FREE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
_PLAIN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = (
    zipfile.BadZipFile,
    IndexError,  # zipfile, for a member whose name is empty
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


class Upload(Protocol):
    """The part of Django's `UploadedFile` that is needed here."""

    name: str | None

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]: ...


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass
class Budget:
    """Bytes and files that may still be written."""

    bytes_left: int
    files_left: int = MAX_FILES

    def take_file(self, member: str) -> None:
        self.files_left -= 1
        if self.files_left < 0:
            raise Refused(f"more than {MAX_FILES} files", member)

    def take(self, size_bytes: int, member: str) -> None:
        self.bytes_left -= size_bytes
        if self.bytes_left < 0:
            raise Refused("unpacked, the artifact is larger than this installation accepts", member)


def receive_upload(upload: Upload, home: Path, limit_bytes: int) -> Path:
    """Store an upload under `home` and unpack it when it is an archive; the directory with its content."""
    raw = home / "upload"
    _write(raw, upload.chunks(_CHUNK_BYTES), Budget(limit_bytes), "the upload")
    return unpack(raw, home, limit_bytes)


def unpack(raw: Path, home: Path, limit_bytes: int) -> Path:
    """`raw` (inside `home`) as a directory: unpacked, or moved to the name its format is stored under."""
    content = home / "content"
    content.mkdir(mode=0o700)
    with raw.open("rb") as stream:
        start = stream.read(262)
    if start.startswith(b"PK\3\4"):
        return _unpack_zip(raw, content, limit_bytes)
    if start.startswith(b"\x1f\x8b"):
        raw = _gunzip(raw, home / "upload.tar", limit_bytes)
        start = b"\0" * 257 + b"ustar"
    if start[257:262] == b"ustar":
        return _unpack_tar(raw, content, limit_bytes)
    raw.rename(content / "file")
    return content


def copy_path(source: Path, roots: Iterable[Path], home: Path, limit_bytes: int) -> Path:
    """Copy a server-side file or directory that lies inside one of `roots`, links resolved.

    Everything a link leads to must lie inside the same root. Raises `Refused`.
    """
    real = _resolved(source)
    root = next((root for root in map(Path.resolve, roots) if real.is_relative_to(root)), None)
    if root is None:
        raise Refused("this path is outside the directories that versions may be imported from")
    if real.is_file():
        with _opened(real, real.name) as stream:
            _write(home / "upload", _blocks(stream), Budget(limit_bytes), real.name)
        return unpack(home / "upload", home, limit_bytes)
    content = home / "content"
    content.mkdir(mode=0o700)
    unpacking = Unpacking(content, Budget(limit_bytes))
    for member, file in _walk(real, root):
        with _opened(file, member) as stream:
            unpacking.write(member, _blocks(stream))
    return content


def _resolved(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise Refused("no such path on this server") from None


def _walk(top: Path, root: Path) -> Iterator[tuple[str, Path]]:
    pending, visited = [top], set()
    while pending:
        folder = pending.pop()
        if folder.resolve() in visited:
            raise Refused("links in a circle", str(folder.relative_to(top)))
        visited.add(folder.resolve())
        for entry in sorted(folder.iterdir()):
            member = str(entry.relative_to(top))
            real = _resolved(entry)
            if not real.is_relative_to(root):
                raise Refused("a link that leads outside the import directory", member)
            if real.is_dir():
                if entry.name != "__pycache__":
                    pending.append(entry)
            elif stat.S_ISREG(real.stat().st_mode):
                yield member, real
            else:
                raise Refused("neither a file nor a directory", member)


def _opened(source: Path, member: str) -> IO[bytes]:
    # Not following a link that appeared after the check; non-blocking in case it became a pipe.
    stream = os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise Refused("neither a file nor a directory", member)
    return stream


def _unpack_zip(raw: Path, content: Path, limit_bytes: int) -> Path:
    with _damage_is_refused(), raw.open("rb") as stream:
        _check_zip_directory(stream)
        archive = zipfile.ZipFile(stream)
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if pt2.is_archive([entry.filename for entry in entries]):
            raw.rename(content / SINGLE_FILES["pt2"])
            return content
        unpacking = Unpacking(content, Ratio(limit_bytes, raw.stat().st_size))
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG) or entry.flag_bits & 1:
                raise Refused("a link, device or encrypted file", entry.filename)
            if entry.compress_type not in _PLAIN_METHODS:
                raise Refused("a compression method other than deflate", entry.filename)
            with archive.open(entry) as member:
                unpacking.write(entry.filename, _blocks(member))
    return _without_wrapper(content)


def _check_zip_directory(stream: IO[bytes]) -> None:
    """Refuse before zipfile reads a directory of millions of members into memory."""
    end = zipfile._EndRecData(stream)  # type: ignore[attr-defined]
    if end is None or end[zipfile._ECD_SIZE] > MAX_DIRECTORY_BYTES:  # type: ignore[attr-defined]
        raise Refused("a damaged zip archive, or one with far too many members")


def _gunzip(raw: Path, target: Path, limit_bytes: int) -> Path:
    """Unpacked to disk under the budget first: tar's own headers may claim any length."""
    with _damage_is_refused(), gzip.open(raw) as stream:
        _write(target, _blocks(stream), Ratio(limit_bytes, raw.stat().st_size), "the upload")
    return target


class _BoundedHeader(tarfile.TarInfo):
    """Long-name and pax headers are read into memory at whatever length they claim; bounded here."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in tarfile.REGULAR_TYPES and self.size > MAX_HEADER_BYTES:
            raise Refused("a tar header that is far too long")
        return super()._proc_member(archive)  # type: ignore[misc]


def _unpack_tar(raw: Path, content: Path, limit_bytes: int) -> Path:
    unpacking = Unpacking(content, Budget(limit_bytes))
    with _damage_is_refused(), tarfile.open(raw, "r:", tarinfo=_BoundedHeader) as archive:
        for entry in archive:
            if entry.isdir():
                continue
            member = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
            if member is None:
                raise Refused("a link, device or sparse file", entry.name)
            unpacking.write(entry.name, _blocks(member))
    return _without_wrapper(content)


@contextmanager
def _damage_is_refused() -> Iterator[None]:
    """Whatever an archive's library raises while reading becomes one refusal."""
    try:
        yield
    except _DAMAGED as error:
        raise Refused(f"a damaged archive ({error})") from error
    except OSError as error:
        # A member at an impossible offset; a full disk or a missing right is not the archive's fault.
        if error.errno != errno.EINVAL:
            raise
        raise Refused("a damaged archive (a member outside the file)") from error


def _blocks(stream: Readable) -> Iterator[bytes]:
    return iter(lambda: stream.read(_CHUNK_BYTES), b"")


class Ratio(Budget):
    """A budget that also holds an archive to a plausible compression ratio: a bomb stops early."""

    def __init__(self, limit_bytes: int, packed_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._allowed = max(_RATIO_FREE_BYTES, packed_bytes * MAX_RATIO)

    def take(self, size_bytes: int, member: str) -> None:
        super().take(size_bytes, member)
        self._allowed -= size_bytes
        if self._allowed < 0:
            raise Refused(f"it unpacks to more than {MAX_RATIO} times its size", member)


class Unpacking:
    """Writes members below `content`, each path checked and none twice."""

    def __init__(self, content: Path, budget: Budget) -> None:
        self._content = content
        self._budget = budget
        self._names: set[str] = set()

    def write(self, member: str, blocks: Iterable[bytes]) -> None:
        parts = _safe_parts(member)
        folded = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if folded in self._names:
            raise Refused("two members of this name", member)
        self._names.add(folded)
        self._budget.take_file(member)
        target = self._content.joinpath(*parts)
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise Refused("both a file and a directory", member) from None
        _write(target, blocks, self._budget, member)


def _safe_parts(member: str) -> tuple[str, ...]:
    path = PurePosixPath(member)
    parts = tuple(part for part in path.parts if part != ".")
    is_odd = (
        not member.isprintable() or "\\" in member or len(member) > MAX_PATH_CHARS or len(parts) > MAX_DEPTH
    )
    is_odd = is_odd or any(len(part.encode()) > MAX_NAME_BYTES for part in parts)
    if path.is_absolute() or ".." in parts or not parts or is_odd:
        raise Refused("a path that leads out of the artifact, or an odd one", repr(member)[:MAX_PATH_CHARS])
    return parts


def _write(target: Path, chunks: Iterable[bytes], budget: Budget, member: str) -> None:
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Refused("two members of this name", member) from None
    with os.fdopen(descriptor, "wb") as stream:
        for chunk in chunks:
            budget.take(len(chunk), member)
            stream.write(chunk)


def _without_wrapper(content: Path) -> Path:
    """`zip -r model.zip model/` wraps everything in one folder; the artifact is what is inside it."""
    entries = list(content.iterdir())
    if not entries:
        raise Refused("an empty archive")
    is_wrapped = len(entries) == 1 and entries[0].is_dir()
    return entries[0] if is_wrapped else content
