"""What an event or an alert says, in the reader's language."""

from collections.abc import Mapping
from typing import Any

from django import template

from helixweb.common import sentences

register = template.Library()


@register.filter
def short(value: float) -> str:
    """A threshold without zeros that say nothing."""
    return f"{value:,.6g}"


@register.filter
def in_words(said: Mapping[str, Any]) -> str:
    """Of what `sentence` made; empty for nothing."""
    return sentences.in_words(said) if said else ""
