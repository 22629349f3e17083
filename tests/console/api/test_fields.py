"""What a body says when it refuses, before anything is asked of the database."""

from __future__ import annotations

import pytest
from rest_framework import serializers

from console.api.keys import KeyBody
from console.api.models import ModelChange


@pytest.mark.parametrize(
    ("body", "given", "said"),
    [
        (ModelChange, {"idle_policy": "by_luck"}, "none, by_use, by_grant, by_guarantee"),
        (KeyBody, {"name": "nightly", "scopes": ["infer", "all"]}, "infer, manage:read"),
    ],
)
def test_who_is_refused_a_choice_is_told_which_there_are(
    body: type[serializers.Serializer], given: dict[str, object], said: str
) -> None:
    read = body(data=given)
    assert not read.is_valid()
    assert f"is none of: {said}" in str(read.errors)
