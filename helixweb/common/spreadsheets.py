"""Cells of files that people open in a spreadsheet, which takes some texts for formulas."""

from typing import Any

# What a formula begins with in the known programs, and blanks that they pass over before it.
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n")


def cell(value: Any) -> Any:
    """The value; a text that would be a formula with an apostrophe before it, as OWASP says."""
    if isinstance(value, str) and value.startswith(FORMULA_BEGINS):
        return f"'{value}"
    return value
