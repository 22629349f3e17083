"""The file of an archive: gzip, one line an event, as an export in the format `jsonl` has them."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from django.conf import settings

from tenants.trail.canonical import GENESIS, link_hash, record_text
from tenants.trail.formats.writer import Row

_HEAD = b'{"record":'
_TAIL_CHARS = len(',"prev_hash":"","hash":""}') + 4 * len(GENESIS)
_CHUNK = 1 << 20


class Damaged(ValueError):
    """A file that is not what it should be; the message says in what."""


@dataclass(frozen=True, slots=True)
class Line:
    """One event as it was archived."""

    record: bytes
    prev_hash: bytes
    hash: bytes

    @property
    def is_whole(self) -> bool:
        return link_hash(self.prev_hash, self.record.decode()) == self.hash


def path_of(archive_id: str) -> Path:
    return Path(settings.STATE_DIR) / "audit" / "archives" / f"{archive_id}.jsonl.gz"


def write(path: Path, pages: Iterable[list[Row]]) -> None:
    """All of it, on the disk, under its name; or nothing under its name. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
            for page in pages:
                packed.write(b"".join(map(line_of, page)))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the name, too, survives a power cut
    finally:
        os.close(directory)


def line_of(row: Row) -> bytes:
    tail = f',"prev_hash":"{bytes(row["prev_hash"]).hex()}","hash":"{bytes(row["hash"]).hex()}"}}\n'
    return _HEAD + record_text(row).encode() + tail.encode()


def read(path: Path) -> Iterator[Line]:
    """Raises `Damaged` for what no archive holds, `OSError` when there is no file."""
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                yield _parsed(line.rstrip(b"\n"))
    except (EOFError, gzip.BadGzipFile) as error:
        raise Damaged("it is cut off or no gzip file") from error


def digest(path: Path) -> str:
    """SHA-256 in hex. Raises `OSError`."""
    found = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _parsed(line: bytes) -> Line:
    record, tail = line[len(_HEAD) : -_TAIL_CHARS], line[-_TAIL_CHARS:]
    try:
        said = json.loads(b"{" + tail[1:])
        return Line(record, bytes.fromhex(said["prev_hash"]), bytes.fromhex(said["hash"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("it holds a line that is no event") from error
