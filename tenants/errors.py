"""What may go wrong when someone asks the control plane for something.

    DomainError
    ├── NotFound     the thing does not exist, or is not yours: nobody can tell which
    ├── Archived     it was here, and is in a file now
    ├── NotAllowed   you may see it, but not do that
    ├── Invalid      the values are wrong, by field
    └── Conflict     the values are fine, the present state forbids it

`console/problems.py` turns these into responses; nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class DomainError(Exception):
    """Base. The message is a sentence that may be shown to the person who asked."""

    code: ClassVar[str] = "domain_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(DomainError):
    """Raised alike for what does not exist and for what belongs to somebody else.

    The message names only the kind asked for, so that the two cannot be told apart.
    """

    code = "not_found"

    def __init__(self, kind: str = "object") -> None:
        super().__init__(f"No such {kind}.")
        self.kind = kind


class Archived(DomainError):
    """The thing was moved out of the database. `archive`: facts of the file that holds it, to be shown."""

    code = "archived"

    def __init__(self, message: str, archive: Mapping[str, object]) -> None:
        super().__init__(message)
        self.archive = dict(archive)


class NotAllowed(DomainError):
    """The actor sees the object but lacks the right. `tenant_id`: in which tenant, where one was asked about."""

    code = "not_allowed"

    def __init__(self, message: str, tenant_id: str | None = None) -> None:
        super().__init__(message)
        self.tenant_id = tenant_id


class Invalid(DomainError):
    """`errors` maps field names to sentences; the empty name holds what belongs to no single field."""

    code = "invalid"

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(errors.values()))
        self.errors = dict(errors)


class Conflict(DomainError):
    """The request is well formed, but the present state of things forbids it."""

    code = "conflict"
