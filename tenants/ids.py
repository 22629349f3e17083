"""Opaque, prefixed primary keys: they tell what they name and nothing else (no count, no time)."""

from __future__ import annotations

import secrets
from functools import partial
from string import ascii_lowercase, digits
from typing import Any

from django.db import models

ID_CHARS = 16
_ALPHABET = ascii_lowercase + digits


def new_id(prefix: str) -> str:
    """`tnt_` → `tnt_4k0z…`: 16 random characters, 82 bits."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(ID_CHARS))


class PrefixedIdField(models.CharField):
    """A `CharField` that fills itself with a new id of its prefix; primary key unless told otherwise."""

    def __init__(self, prefix: str, **options: Any) -> None:
        self.prefix = prefix
        options.setdefault("primary_key", True)
        super().__init__(
            default=partial(new_id, prefix), max_length=len(prefix) + ID_CHARS, editable=False, **options
        )

    def deconstruct(self) -> Any:
        name, path, args, options = super().deconstruct()
        for own in ("default", "max_length", "editable"):
            options.pop(own, None)
        options["primary_key"] = self.primary_key
        return name, path, [self.prefix, *args], options
