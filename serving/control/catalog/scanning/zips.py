"""A zip archive read strictly, so that every reader sees the same members.

Python's zipfile and torch's miniz forgive different things (prefixes, comments, two directories, names that
differ in case). A forgiving scan in front of a differently forgiving loader is no scan. Accepted is only
what torch itself writes: members stored uncompressed, one after the other from byte 0, one central
directory, nothing after it. Source of the layout: PKWARE APPNOTE 6.3.10.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from serving.control.catalog.refusal import Refused

MAX_MEMBERS = 100_000
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_HAS_DESCRIPTOR = 1 << 3
_ALLOWED_FLAGS = _HAS_DESCRIPTOR | 1 << 11  # UTF-8 names
_DESCRIPTOR_BYTES = (0, 12, 16, 20, 24)


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    header_offset: int
    data_offset: int
    size_bytes: int
    flags: int


class StrictZip:
    """`members` by name; raises `Refused` when the archive is not laid out as described above."""

    def __init__(self, stream: BinaryIO, label: str) -> None:
        self._stream = stream
        self._label = label
        size_bytes = stream.seek(0, 2)
        directory_offset, directory_bytes, count = self._end_record(size_bytes)
        self.members = self._directory(directory_offset, directory_bytes, count)
        self._check_contiguous(directory_offset)

    def read(self, name: str, limit_bytes: int) -> bytes:
        member = self.members[name]
        if member.size_bytes > limit_bytes:
            raise self._refused(f"{name} has {member.size_bytes} bytes; at most {limit_bytes} are read")
        return self._at(member.data_offset, member.size_bytes)

    def _end_record(self, size_bytes: int) -> tuple[int, int, int]:
        """Offset and size of the central directory, and the number of members."""
        end_offset = size_bytes - _END.size
        magic, disk, start_disk, here, total, size, offset, comment = self._unpack(_END, end_offset)
        if magic != b"PK\5\6" or comment or disk or start_disk or here != total:
            raise self._refused("not a plain zip archive: bytes after its end, or damaged")
        found, end_offset = self._end64_record(end_offset)
        if found:
            for short, long, full in zip(
                (total, size, offset), found, (0xFFFF, 2**32 - 1, 2**32 - 1), strict=True
            ):
                if short not in (long, full):
                    raise self._refused("its two end records disagree")
            total, size, offset = found
        if offset + size != end_offset or total > MAX_MEMBERS:
            raise self._refused("its directory does not end where the archive ends")
        return offset, size, total

    def _end64_record(self, end_offset: int) -> tuple[tuple[int, int, int] | None, int]:
        if end_offset < _LOCATOR.size + _END64.size:
            return None, end_offset
        magic, disk, offset, disks = self._unpack(_LOCATOR, end_offset - _LOCATOR.size)
        if magic != b"PK\6\7":
            return None, end_offset
        if disk or disks > 1 or offset != end_offset - _LOCATOR.size - _END64.size:
            raise self._refused("its zip64 record is not where it belongs")
        magic, record_bytes, _, _, disk, start_disk, here, total, size, start = self._unpack(_END64, offset)
        if magic != b"PK\6\6" or record_bytes != _END64.size - 12 or disk or start_disk or here != total:
            raise self._refused("its zip64 record is damaged")
        return (total, size, start), offset

    def _directory(self, offset: int, size_bytes: int, count: int) -> dict[str, Member]:
        position, end = offset, offset + size_bytes
        members: dict[str, Member] = {}
        folded: set[str] = set()
        for _ in range(count):
            member, position = self._central_entry(position)
            if member.name.casefold() in folded:
                raise self._refused(f"two members named {member.name!r}")
            folded.add(member.name.casefold())
            members[member.name] = member
        if position != end:
            raise self._refused("its directory holds more than its members")
        return members

    def _central_entry(self, position: int) -> tuple[Member, int]:
        magic, _, _, flags, method, _, _, _, *rest = self._unpack(_CENTRAL, position)
        packed, size, name_bytes, extra_bytes, comment_bytes, disk, _, _, offset = rest
        if magic != b"PK\1\2" or comment_bytes or disk or flags & ~_ALLOWED_FLAGS:
            raise self._refused("a damaged, encrypted or commented directory entry")
        start = position + _CENTRAL.size
        name = self._name(self._at(start, name_bytes))
        extra = self._at(start + name_bytes, extra_bytes)
        size, packed, offset = self._wide(extra, size, packed, offset)
        if method != 0 or packed != size:
            raise self._refused(f"{name} is compressed; torch stores members as they are")
        data_offset = self._data_offset(offset, name, flags)
        return Member(name, offset, data_offset, size, flags), start + name_bytes + extra_bytes

    def _wide(self, extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
        """Sizes beyond 32 bits live in the zip64 extra field, in this order, only where the short one is full."""
        wide = self._zip64_extra(extra)
        values = []
        for short in (size, packed, offset):
            value = short
            if short == 2**32 - 1 and len(wide) >= 8:
                value, wide = int.from_bytes(wide[:8], "little"), wide[8:]
            values.append(value)
        return values[0], values[1], values[2]

    def _zip64_extra(self, extra: bytes) -> bytes:
        found = []
        while len(extra) >= 4:
            kind = int.from_bytes(extra[:2], "little")
            end = 4 + int.from_bytes(extra[2:4], "little")
            if kind == 1:
                found.append(extra[4:end])
            extra = extra[end:]
        if len(found) > 1:
            raise self._refused("a member with two zip64 sizes")
        return found[0] if found else b""

    def _data_offset(self, offset: int, name: str, flags: int) -> int:
        magic, _, local_flags, method, *_, name_bytes, extra_bytes = self._unpack(_LOCAL, offset)
        local_name = self._at(offset + _LOCAL.size, name_bytes)
        if magic != b"PK\3\4" or method != 0 or local_flags != flags or local_name != name.encode():
            raise self._refused(f"{name} is described differently in two places")
        return offset + _LOCAL.size + name_bytes + extra_bytes

    def _name(self, raw: bytes) -> str:
        try:
            name = raw.decode("ascii")
        except UnicodeDecodeError:
            raise self._refused("a member with an odd name") from None
        parts = name.split("/")
        if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
            raise self._refused(f"a member with an odd name: {name!r}")
        return name

    def _check_contiguous(self, directory_offset: int) -> None:
        position = 0
        may_follow: tuple[int, ...] = (0,)
        for member in sorted(self.members.values(), key=lambda member: member.header_offset):
            if member.header_offset - position not in may_follow:
                raise self._refused("bytes between its members")
            position = member.data_offset + member.size_bytes
            may_follow = _DESCRIPTOR_BYTES if member.flags & _HAS_DESCRIPTOR else (0,)
        if directory_offset - position not in may_follow:
            raise self._refused("bytes between its members and its directory")

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple:
        return layout.unpack(self._at(offset, layout.size))

    def _at(self, offset: int, size_bytes: int) -> bytes:
        if offset < 0:
            raise self._refused("not a zip archive")
        self._stream.seek(offset)
        raw = self._stream.read(size_bytes)
        if len(raw) != size_bytes:
            raise self._refused("a truncated zip archive")
        return raw

    def _refused(self, reason: str) -> Refused:
        return Refused(reason, self._label)
