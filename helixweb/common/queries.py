"""Reads ids out of query strings and headers."""

from typing import Any

from django.http import HttpRequest

# Longer numbers fit no column.
MAX_DIGITS = 18


def query_id(request: HttpRequest, name: str) -> int:
    """The id in `?name=`; 0, which no row has, for anything else."""
    return parsed_id(request.GET.get(name, "")) or 0


def parsed_id(text: str) -> int | None:
    """The id; None for anything else."""
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdigit() else None


def within(rows: Any, scope: Any) -> Any:
    """Rows of clusters as far as they are in scope (see `access/scope.py`); others all."""
    return rows.within(scope) if hasattr(rows, "within") else rows
