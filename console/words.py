"""Words that pages and commands share."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from serving.contract import OptionValue, TuningRow
from serving.control.tuning.recommend import Tolerance, shortfall


def label_of(changed: Mapping[str, OptionValue]) -> str:
    """What sets a tuning candidate apart from the reference: `bf16 · compiled · 4 threads`."""
    parts = [_word(name, value) for name, value in changed.items()]
    return " · ".join(parts) or _("full precision")


def _word(name: str, value: OptionValue) -> str:
    match name:
        case "dtype" | "quantize" | "execution":
            return str(value)
        case "compile":
            return _("compiled") if value else _("not compiled")
        case "threads":
            return ngettext("%(n)d thread", "%(n)d threads", int(value)) % {"n": int(value)}
    return f"{name}={value}"


def shortfall_of(row: TuningRow, tolerance: Tolerance) -> str:
    """Why a candidate that ran does not qualify; empty when it does."""
    missed = shortfall(row.agreement, tolerance) if row.agreement is not None else None
    if missed is None:
        return ""
    facts = {"found": f"{missed.found:.4g}", "bound": f"{missed.bound:g}"}
    match missed.measure:
        case "cosine":
            return _("cosine %(found)s, at least %(bound)s was asked") % facts
        case "error":
            return _("error %(found)s, at most %(bound)s was asked") % facts
        case "labels":
            return _("%(found)s of labels agree, at least %(bound)s was asked") % facts
        case "equality":
            return _("answers differ, and no bound says how far they may")
