"""Template filter: the sentence of an event or an alert in the reader's language."""

from collections.abc import Mapping
from typing import Any

from django import template
from django.utils.translation import gettext

from helixweb.common import sentences

register = template.Library()


_LONGER = ((86_400, "d"), (3_600, "h"), (60, "min"))


@register.filter
def in_unit(value: float, unit: str) -> str:
    """A rule's threshold, or how long it waits: 1209600 s are 14 d, a ratio of 0.95 is 95 %.

    What is watched without a unit is or is not: no number says more of it.
    """
    if not unit:
        return "—"
    if unit == "ratio":
        return f"{value * 100:,.6g} %"
    if unit == "s":
        for size_s, name in _LONGER:
            if value and value % size_s == 0:
                return f"{value / size_s:,.6g} {name}"
    return f"{value:,.6g} {gettext(unit)}"


@register.filter
def in_words(said: Mapping[str, Any]) -> str:
    """Of what `sentence` made; empty for nothing."""
    return sentences.in_words(said) if said else ""
