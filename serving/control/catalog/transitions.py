"""How a version changes state: by the table of `states.py`, and by one UPDATE that at most one caller wins."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from serving.contract import VersionState
from serving.control.catalog import states
from serving.control.catalog.models import Version
from tenants.errors import Conflict


def move(version: Version, state: VersionState, reason: str = "", **fields: Any) -> None:
    """The conditional UPDATE of a version's state: of two at once one wins, the other raises `Conflict`."""
    rows = Version.objects.filter(pk=version.pk, state__in=states.sources_of(state))
    changes = {"state": state, "state_reason": reason, "state_changed_at": timezone.now(), **fields}
    if not rows.update(**changes):
        raise Conflict(f"A version that is {_current_state(version)} cannot become {state}.")
    for name, value in changes.items():
        setattr(version, name, value)


def _current_state(version: Version) -> str:
    return Version.objects.values_list("state", flat=True).get(pk=version.pk)
