"""Files that are fetched in parts: byte ranges (RFC 9110 §14), so that a broken download goes on where it was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

CHUNK_BYTES = 256 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def part_of(asked: str, size_bytes: int) -> tuple[int, int] | None:
    """First byte and the byte after the last of one range; the whole for what is no single range.

    None for a range that lies outside the file.
    """
    found = _RANGE.fullmatch(asked.strip())
    if found is None or found.groups() == ("", ""):
        return 0, size_bytes
    first, last = found.groups()
    if not first:  # the last so many bytes
        return (max(0, size_bytes - int(last)), size_bytes) if int(last) else None
    start, end = int(first), min(int(last) + 1 if last else size_bytes, size_bytes)
    if last and int(last) < start:
        return 0, size_bytes  # no range at all: ignored
    return (start, end) if start < size_bytes else None


def asked_part(request: HttpRequest, size_bytes: int, digest: str) -> tuple[int, int] | None:
    """`part_of` what the request asks, which is the whole when `If-Range` names another content than `digest`."""
    etag = f'"{digest}"'
    asked = request.headers.get("Range", "") if request.headers.get("If-Range", etag) == etag else ""
    return part_of(asked, size_bytes)


def send_file(
    request: HttpRequest, path: Path, *, name: str, media_type: str, digest: str
) -> HttpResponseBase:
    """200 with all of it, 206 with the range that was asked for, 416 where there is nothing.

    `digest` names the content: `If-Range` with another one gets the whole file, `If-None-Match` with it 304.
    """
    size_bytes, etag = path.stat().st_size, f'"{digest}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    if etag in request.headers.get("If-None-Match", ""):
        return HttpResponse(status=304, headers=headers)
    part = asked_part(request, size_bytes, digest)
    if part is None:
        return HttpResponse(status=416, headers=headers | {"Content-Range": f"bytes */{size_bytes}"})
    start, end = part
    headers |= {
        "Content-Length": str(end - start),
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
    }
    if (start, end) != (0, size_bytes):
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size_bytes}"
    status = 206 if "Content-Range" in headers else 200
    return StreamingHttpResponse(
        _content(request, path, start, end), status=status, content_type=media_type, headers=headers
    )


def _content(
    request: HttpRequest, path: Path, start: int, end: int
) -> Iterator[bytes] | AsyncIterator[bytes]:
    """Under ASGI Django would read a plain iterator to its end before it sends a byte."""
    chunks = _chunks(path, start, end)
    return _in_thread(chunks) if isinstance(request, ASGIRequest) else chunks


def _chunks(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while start < end and (chunk := file.read(min(CHUNK_BYTES, end - start))):
            start += len(chunk)
            yield chunk


async def _in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk
