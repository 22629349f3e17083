"""How far beyond its prediction a request may go, by what requests of its version did lately. Pure.

A device that stood still, or a stall of its host, makes one request look a thousand times dearer than it is. What is
reserved by that must come down again while nobody is answered, or a budget could refuse everything for ever.
"""

from __future__ import annotations

LEAST = 1.5
"""A request may take this much more than predicted, at least."""
FIRST = 4.0
"""The same while nothing was answered yet."""
MARGIN = 1.2
"""Beyond the largest of lately."""
FADING = 0.999
"""With every answer."""
HALF_LIFE_S = 30.0
"""And with time."""
MAX_VERSIONS = 4096


class Margins:
    """By version, forgotten all at once where there are more than anybody serves."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}
        """Version → its factor, and the Unix seconds at which it was right."""

    def of(self, version_id: str, now: float) -> float:
        """`now` in Unix seconds; a clock that is set back fades nothing."""
        known = self._known.get(version_id)
        if known is None:
            return FIRST
        factor, at = known
        if factor <= LEAST:  # nearly always: nothing fades below it
            return LEAST
        faded = factor * 0.5 ** (max(0.0, now - at) / HALF_LIFE_S)
        return faded if faded > LEAST else LEAST

    def learn(self, version_id: str, ratio: float, now: float) -> None:
        """A request took `ratio` times what was predicted."""
        if len(self._known) >= MAX_VERSIONS:
            self._known.clear()
        known = self.of(version_id, now) * FADING if version_id in self._known else LEAST
        self._known[version_id] = max(LEAST, known, ratio * MARGIN), now
