"""`ETag` and `If-Match` (RFC 9110, 13): who changes what they did not see is told, instead of undoing it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rest_framework import exceptions

from console.api.errors import PreconditionFailed
from tenants.staleness import mark_of

_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_ONE = re.compile(_TAG)
_LIST = re.compile(rf"{_TAG}(?: *, *{_TAG})*")
_MAX_CHARS = 1000


def tag_of(document: Mapping[str, Any], moving: tuple[str, ...] = ()) -> str:
    """A strong tag of everything a client may have read, without what moves by itself."""
    return f'"{mark_of({name: value for name, value in document.items() if name not in moving})}"'


def refuse_changed(if_match: str | None, tag: str | None) -> None:
    """Raises `PreconditionFailed` unless the header is absent, `*`, or lists the tag; `ParseError` for noise.

    `tag` None: there is no such object, and so nothing that any header could name.
    """
    if if_match is None or (if_match.strip() == "*" and tag is not None):
        return
    if if_match.strip() == "*":
        raise PreconditionFailed("There is no such object yet.")
    given = if_match.strip()
    if len(given) > _MAX_CHARS or not _LIST.fullmatch(given):
        raise exceptions.ParseError('If-Match holds tags in quotes, such as "4f0c…", or *.')
    # Compared as they are: a weak tag (W/…) matches nothing, as the standard asks of If-Match.
    if tag not in _ONE.findall(given):
        raise PreconditionFailed("It was changed since you read it. Read it again and decide anew.")
