"""Checks shared by rows, forms, the REST API and imports; messages name value and remedy."""

import math
import unicodedata

from django.core.exceptions import ValidationError

from planner.domain.cluster import RESERVED_NAMES

MAX_LAYERS = 10_000


def validate_positive(value: float) -> None:
    """A finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValidationError(f"{value} is not allowed; give a number greater than 0.")


def validate_not_negative(value: float) -> None:
    """A finite number, 0 or above."""
    if not (math.isfinite(value) and value >= 0):
        raise ValidationError(f"{value} is not allowed; give 0 or a greater number.")


def validate_name(value: str) -> None:
    """Printable text without blanks at its ends."""
    if value != value.strip():
        raise ValidationError(f"{value!r} begins or ends with a blank; remove it.")
    if any(unicodedata.category(character).startswith("C") for character in value):
        raise ValidationError(f"{value!r} contains a control character; remove it.")


def validate_node_name(value: str) -> None:
    """A name that means no other vertex of the flow graph."""
    validate_name(value)
    if value in RESERVED_NAMES:
        raise ValidationError(
            f"{value!r} is reserved; choose another name "
            f"(reserved: {', '.join(sorted(RESERVED_NAMES))})."
        )


def validate_curve(values: object) -> None:
    """A list of finite numbers, 0 or above: one for each number of layers held."""
    if not isinstance(values, list):
        raise ValidationError("Give a list of numbers, one for each number of layers held.")
    if len(values) > MAX_LAYERS:
        raise ValidationError(f"The list has {len(values)} entries; at most {MAX_LAYERS} are kept.")
    for layers, value in enumerate(values, start=1):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValidationError(f"The entry for {layers} layers is {value!r}; give a number.")
        validate_not_negative(value)
