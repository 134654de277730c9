"""Reads what pages find in their query strings."""

from django.http import HttpRequest

# Longer numbers fit no column.
MAX_DIGITS = 18


def query_id(request: HttpRequest, name: str) -> int:
    """The id in `?name=`; 0, which no row has, for anything else."""
    text = request.GET.get(name, "")
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdigit() else 0
