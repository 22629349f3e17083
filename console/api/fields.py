"""Fields that take what the OpenAPI document says and nothing beside: `"5"` is no number, 1 is no text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.db.models import Model
from rest_framework import serializers

UNKNOWN = "There is no such field."
MAX_TEXT = 2000


class Body(serializers.Serializer):
    """What a client sends. A field that nobody knows is refused, at every depth."""

    def get_fields(self) -> Any:
        """As declared; who is refused a choice is told which there are."""
        fields = super().get_fields()
        for field in fields.values():
            one = getattr(field, "child", field)
            if isinstance(one, serializers.ChoiceField):
                known = ", ".join(str(choice) or '""' for choice in one.choices)
                one.error_messages["invalid_choice"] = '"{input}" is none of: ' + known + "."
        return fields

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields] if isinstance(data, Mapping) else []
        said = {str(name): [UNKNOWN] for name in unknown}
        try:
            values = super().to_internal_value(data)
        except serializers.ValidationError as error:
            raise serializers.ValidationError({**_by_field(error.detail), **said}) from error
        if said:
            raise serializers.ValidationError(said)
        return values


class Document(serializers.Serializer):
    """What a client is shown: an object of ours, rendered."""

    moving: ClassVar[tuple[str, ...]] = ()
    """Fields that change by themselves, and so say nothing about a lost update."""


class Query(Body):
    """What may follow the question mark."""


class Text(serializers.CharField):
    def __init__(self, **options: Any) -> None:
        options.setdefault("max_length", MAX_TEXT)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    def __init__(self, **options: Any) -> None:
        options.setdefault("min_value", 0)
        options.setdefault("max_value", (1 << 31) - 1)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> int:
        # 3.0 is a whole number to JSON Schema, too.
        if isinstance(data, float) and data.is_integer():
            data = int(data)
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class Number(serializers.FloatField):
    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            number = float(data)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fail("invalid")
        return super().to_internal_value(number)


class Flag(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Moment(serializers.DateTimeField):
    """RFC 3339; read with any offset, never without one, and shown in UTC with `Z`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(default_timezone=UTC, **options)

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise serializers.ValidationError("A time needs its offset, such as Z.")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise serializers.ValidationError("Beyond the calendar.") from None


class Ref(serializers.CharField):
    """The id of another object. Shown, it is the object's own id."""

    def __init__(self, prefix: str, **options: Any) -> None:
        super().__init__(max_length=40, help_text=options.pop("help_text", f"An id `{prefix}…`"), **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)

    def to_representation(self, value: Any) -> str:
        return str(value.pk) if isinstance(value, Model) else str(value)


def _by_field(detail: Any) -> dict[str, Any]:
    return dict(detail) if isinstance(detail, Mapping) else {"": detail}
