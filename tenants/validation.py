"""Saves a row after checking it, and says what is wrong in the words of `tenants.errors`."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import IntegrityError, models, transaction
from psycopg.errors import CheckViolation

from tenants.errors import Conflict, Invalid
from tenants.keys import holds_token
from tenants.scoping import all_tenants, scope_of_row


def save_valid(row: models.Model, only: Collection[str] = ()) -> None:
    """Check every field and constraint, then save. `only`: fields to check and write, of a row that others write too.

    Raises `Invalid` by field; `Conflict` when another transaction took the unique value in between.
    """
    _refuse_invisible(row)
    try:
        with all_tenants("uniqueness is judged over every row"):
            _clean(row, only)
        # A savepoint: the caller's transaction survives the refusal.
        with scope_of_row(row), transaction.atomic():
            row.save(update_fields=only or None)
    except ValidationError as error:
        raise invalid(error) from error
    except IntegrityError as error:
        if isinstance(error.__cause__, CheckViolation):
            _explain(row)
        raise Conflict(_violation(row, error)) from error


def refuse_unknown(names: Iterable[str], editable: Collection[str]) -> None:
    """Raises `Invalid` for whatever is not among the fields that may be changed."""
    unknown = {name: "This cannot be changed." for name in names if name not in editable}
    if unknown:
        raise Invalid(unknown)


def _clean(row: models.Model, only: Collection[str]) -> None:
    """Everything but the check constraints: the database judges them when it saves.

    Asking it beforehand as well, as `full_clean` does, costs three statements for each of them.
    """
    others = {f.name for f in row._meta.concrete_fields if f.name not in only} if only else None
    try:
        row.full_clean(exclude=others, validate_constraints=False)
        for model, constraints in row.get_constraints():
            for constraint in constraints:
                if not isinstance(constraint, models.CheckConstraint):
                    constraint.validate(model, row)
    except ValidationError:
        row.full_clean(exclude=others)  # says at once all that is wrong
        raise


def _explain(row: models.Model) -> None:
    """Raise `Invalid` in the words of the constraints that a refused row violates."""
    try:
        with all_tenants("uniqueness is judged over every row"):
            row.full_clean()
    except ValidationError as error:
        raise invalid(error) from error


_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control and format characters, halves of characters, line and paragraph separators."""
_JOINERS = "\u200c\u200d"
"""Format characters that words of some languages, and some symbols, are written with."""


def _refuse_invisible(row: models.Model) -> None:
    """A name is one line that reads as it is: with a line break it could never be typed to confirm a deletion,
    with a direction mark it could pass for another one.
    """
    texts = {
        field.name: field.value_from_object(row)
        for field in row._meta.concrete_fields
        if isinstance(field, models.CharField)
    }
    wrong = [name for name, text in texts.items() if isinstance(text, str) and _is_invisible(text)]
    if wrong:
        raise Invalid(dict.fromkeys(wrong, "Use visible characters, on one line."))
    keys = [name for name, text in texts.items() if isinstance(text, str) and holds_token(text)]
    if keys:  # others would read it there for ever
        raise Invalid(
            dict.fromkeys(keys, "This is an API key. Keep it secret, and write something else here.")
        )


def _is_invisible(text: str) -> bool:
    return any(unicodedata.category(c) in _INVISIBLE and c not in _JOINERS for c in text)


def invalid(error: ValidationError) -> Invalid:
    """Django's validation error as ours: one sentence per field, "" for the row as a whole.

    A constraint names the field its sentence belongs to by `violation_error_code="field:name"`.
    """
    said: dict[str, list[str]] = {}
    by_field = error.error_dict if hasattr(error, "error_dict") else {NON_FIELD_ERRORS: error.error_list}
    for name, failures in by_field.items():
        for failure in failures:
            said.setdefault(_field_of(name, failure.code), []).extend(failure.messages)
    return Invalid({name: " ".join(messages) for name, messages in said.items()})


def _field_of(name: str, code: str | None) -> str:
    if name != NON_FIELD_ERRORS:
        return name
    return code.removeprefix("field:") if code and code.startswith("field:") else ""


def _violation(row: models.Model, error: IntegrityError) -> str:
    """The sentence of the violated constraint, when it has one of its own."""
    name = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)
    for constraint in row._meta.constraints:
        if constraint.name == name:
            return str(constraint.get_violation_error_message())
    return "This collides with something that was saved at the same moment. Look again and retry."
