"""Two people edit one thing: the second to save is told, instead of undoing what the first did.

A form carries a mark of the values it showed; the action compares it, behind its lock, with what is there now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from tenants.errors import Conflict


def mark_of(facts: Mapping[str, Any]) -> str:
    """The same for the same values under the same names, in any order."""
    text = json.dumps(dict(facts), sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def refuse_stale(seen: str, facts: Mapping[str, Any]) -> None:
    """Raises `Conflict` when `seen` marks other values than `facts`; an empty mark asks for no check."""
    if seen and seen != mark_of(facts):
        raise Conflict("Somebody else changed this meanwhile. Reload the page and make your change again.")
