"""Forms that end in an action: they read what was typed; what is allowed is the action's business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _

from tenants.errors import NotAllowed


class ActionForm(forms.Form):
    """Base of every form here. `units` maps fields to what is written behind them."""

    units: ClassVar[dict[str, Any]] = {}
    denied: NotAllowed | None = None
    """What the action said to somebody who lacks a right; whoever shows the form again writes it down."""
    use_required_attribute = False
    label_suffix = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field.widget, forms.RadioSelect | forms.CheckboxSelectMultiple):
                field.widget.attrs["class"] = "form-check-input"

    def values(self) -> dict[str, Any]:
        """Keyword arguments for the action; forms whose fields differ from it override this."""
        return dict(self.cleaned_data)

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Put an action's errors at their fields; what belongs to none of them goes on top."""
        for name, said in errors.items():
            self.add_error(
                name if name in self.fields else None, said if name in self.fields else _named(name, said)
            )

    def remember(self, seen: str) -> None:
        """Keep what the person was shown (`tenants.staleness.mark_of`), so that the action can tell when it changed."""
        self.fields["seen"] = forms.CharField(required=False, initial=seen, widget=forms.HiddenInput)

    @property
    def is_multipart_form(self) -> bool:
        return self.is_multipart()


class FigureField(forms.FloatField):
    """A number that need not be whole, shown without a needless `.0`."""

    def prepare_value(self, value: Any) -> Any:
        return f"{value:.10g}" if isinstance(value, float) else value


class ConfirmForm(ActionForm):
    """Destructive acts ask for the name of what they destroy."""

    name = forms.CharField(label=_("Name"), widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, expected: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = expected
        self.fields["name"].help_text = _("Type “%(name)s” to confirm.") % {"name": expected}

    def clean_name(self) -> str:
        typed: str = self.cleaned_data["name"]
        # A page shows one space where a name has several: what was read and typed counts.
        if typed.split() != self.expected.split():
            raise forms.ValidationError(_("This is not the name."))
        return typed

    def values(self) -> dict[str, Any]:
        return {}


def _named(name: str, said: str) -> str:
    return f"{name}: {said}" if name else said
