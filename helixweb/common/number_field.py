"""A field for real numbers that shows them as people write them."""

from typing import Any

from django import forms


class PlainNumberInput(forms.NumberInput):
    """60 where Django shows 60.0, and 0.1 where it shows 0.10000000000000001."""

    def format_value(self, value: Any) -> str | None:
        if isinstance(value, float):
            value = float(f"{value:.12g}")
            value = int(value) if value.is_integer() else value
        shown: str | None = super().format_value(value)
        return shown


class NumberField(forms.FloatField):
    """A finite real number."""

    widget = PlainNumberInput
