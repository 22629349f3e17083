"""What may go wrong.

TidegateError
├── Refused       the API answered, and said no
└── Unreachable   no answer came
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TidegateError(Exception):
    """Base of what this package raises."""


class Unreachable(TidegateError):
    """The console did not answer, after every repetition that was safe."""


class Damaged(TidegateError):
    """A download whose digest is another one than the console's."""


class Refused(TidegateError):
    """A problem (RFC 9457). `errors` maps JSON pointers to sentences."""

    def __init__(
        self, status: int, code: str, detail: str, errors: Mapping[str, str], request_id: str
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = dict(errors)
        self.request_id = request_id

    @classmethod
    def of(cls, status: int, body: Any) -> Refused:
        """Whatever the body is: a proxy between may answer with a page of its own."""
        said = body if isinstance(body, Mapping) else {}
        listed = said.get("errors")
        rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
        errors = {str(row.get("pointer", "")): str(row.get("detail", "")) for row in rows}
        detail = str(said.get("detail", f"The console answered {status}."))
        return cls(status, str(said.get("code", "")), detail, errors, str(said.get("request_id", "")))

    def __str__(self) -> str:
        lines = [self.detail] if not self.errors else []
        return "\n".join([*lines, *(f"{at or '/'}: {said}" for at, said in self.errors.items())])
