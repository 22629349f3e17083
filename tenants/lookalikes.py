"""User names that read like another one: in a list of members nobody could tell the two apart.

After Unicode Technical Standard #39 (Unicode Security Mechanisms): one form of each character (NFKC), letters of
one alphabet, and no name whose letters all have doubles in Latin when those spell somebody else's name.
"""

from __future__ import annotations

import unicodedata

from tenants.errors import Invalid
from tenants.models import User

_ALPHABETS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "COPTIC", "CHEROKEE", "GEORGIAN", "LISU", "DESERET")
"""Those with letters that look like another's; Chinese, Japanese and Korean stand beside Latin as they do in life."""
_DOUBLES = {
    # Cyrillic
    "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ё": "e", "һ": "h", "н": "h", "і": "i", "ї": "i",
    "ј": "j", "к": "k", "ӏ": "l", "м": "m", "п": "n", "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s",
    "т": "t", "ц": "u", "ѵ": "v", "ԝ": "w", "х": "x", "у": "y", "ү": "y",
    # Greek
    "α": "a", "β": "b", "ϲ": "c", "ε": "e", "η": "n", "ι": "i", "ί": "i", "κ": "k", "ν": "v", "ο": "o",
    "ό": "o", "ρ": "p", "σ": "o", "τ": "t", "υ": "u", "χ": "x", "γ": "y", "ω": "w",
    # Armenian
    "ց": "g", "հ": "h", "ո": "n", "օ": "o", "զ": "q", "ս": "u", "յ": "j",
}  # fmt: skip


def refuse_lookalike(username: str) -> None:
    """Raises `Invalid` for a new name that could pass for another."""
    said = _wrong(username)
    if said:
        raise Invalid({"username": said})


def is_lookalike(username: str) -> bool:
    return bool(_wrong(username))


def _wrong(username: str) -> str:
    if username.isascii():
        return ""
    if unicodedata.normalize("NFKC", username) != username:
        return "Write it with plain characters."
    if len(_alphabets(username)) > 1:
        return "Use letters of one alphabet."
    latin = "".join(_DOUBLES.get(c, c) for c in username.lower())
    if latin.isascii() and User.objects.filter(username__iexact=latin).exists():
        return "This user name looks like another one."
    return ""


def _alphabets(text: str) -> set[str]:
    scripts = {unicodedata.name(c, "").partition(" ")[0] for c in text if c.isalpha()}
    return scripts & set(_ALPHABETS)
