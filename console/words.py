"""Words that pages and commands share."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from serving.contract import OptionValue


def label_of(changed: Mapping[str, OptionValue]) -> str:
    """What sets a tuning candidate apart from the reference: `bf16 · compiled · 4 threads`."""
    parts = [_word(name, value) for name, value in changed.items()]
    return " · ".join(parts) or _("reference: full precision")


def _word(name: str, value: OptionValue) -> str:
    match name:
        case "dtype" | "quantize" | "execution":
            return str(value)
        case "compile":
            return _("compiled") if value else _("not compiled")
        case "threads":
            return ngettext("%(n)d thread", "%(n)d threads", int(value)) % {"n": int(value)}
    return f"{name}={value}"
