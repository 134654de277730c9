"""A field for real numbers that shows them as people write them."""

from typing import Any, ClassVar

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


class ScaledField(NumberField):
    """A number in a unit of which one is `scale` of its column's; messages name what was typed."""

    scale: ClassVar[float]

    def to_python(self, value: Any) -> Any:
        number = super().to_python(value)
        # 12 digits, as they are shown: 9 ms are 0.009 s and not 0.009000000000000001.
        return None if number is None else float(f"{number * self.scale:.12g}")

    def run_validators(self, value: Any) -> None:
        super().run_validators(self.prepare_value(value))

    def prepare_value(self, value: Any) -> Any:
        return value / self.scale if isinstance(value, float | int) else value


class MbitPerSField(ScaledField):
    """Of a column in bytes/s."""

    scale = 125_000


class GbitPerSField(ScaledField):
    """Of a column in bytes/s."""

    scale = 125_000_000


class PercentField(ScaledField):
    """Of a ratio."""

    scale = 0.01


class MillisecondsField(ScaledField):
    """Of a column in seconds."""

    scale = 1e-3


class GigabytesField(ScaledField):
    """Of a column in bytes."""

    scale = 1e9
