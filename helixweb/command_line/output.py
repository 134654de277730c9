"""Output of commands: tables for users, JSON for programs, numbers with units."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from planner.units import BITS_PER_BYTE, prefixed

NOTHING = "-"
# A field of a row, written by the unit in its name; or what computes the value.
Cell: TypeAlias = str | Callable[[Any], object]
Cells: TypeAlias = Mapping[str, Cell]
_UNITS = re.compile(r"_(tokens_per_s|at|s|ratio|name)$")


def json_text(data: Any) -> str:
    """One document, indented; keys in the API's order."""
    return json.dumps(data, indent=2, ensure_ascii=False)


def json_line(data: Any) -> str:
    """One line, for what comes one after the other."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned columns, numbers right-aligned; no trailing blanks."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [
        max([width(column), *(width(row[index]) for row in cells)])
        for index, column in enumerate(columns)
    ]
    right = [_are_numbers([row[index] for row in cells]) for index in range(len(columns))]
    lines = [list(columns), *cells]
    return "\n".join(
        "  ".join(
            _padded(cell, size, at_right)
            for cell, size, at_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """One line per pair, values below each other."""
    lines = [(name, one_line(value)) for name, value in rows]
    size = max((width(name) for name, _ in lines), default=0)
    return "\n".join(f"{_padded(name, size, False)}  {value}".rstrip() for name, value in lines)


def rows_table(cells: Cells, rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of rows of the API; `cells` by the titles of their columns."""
    return table(list(cells), [[written(cell, row) for cell in cells.values()] for row in rows])


def columns(names: str) -> Cells:
    """Fields of a row, in words, as cells with their names without units as titles."""
    return {_UNITS.sub("", name).replace("_", " ").upper(): name for name in names.split()}


def fields(row: Mapping[str, Any]) -> Cells:
    """All fields of a row except nested ones."""
    return {name.replace("_", " "): name for name, value in row.items() if not _is_nested(value)}


def details(cells: Cells, row: Mapping[str, Any]) -> str:
    """One row of the API, a line for each of `cells`."""
    return pairs((title, written(cell, row)) for title, cell in cells.items())


def _is_nested(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_is_nested, value)))


def written(cell: Cell, row: Mapping[str, Any]) -> object:
    """The value of a cell, by the unit that ends the name of its field."""
    if callable(cell):
        return cell(row)
    value = row.get(cell)
    write = next((write for end, write in _BY_UNIT.items() if cell.endswith(end)), None)
    return write(value) if write else value


def one_line(value: object) -> str:
    """A cell's text without control characters."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(one_line(one) for one in value) or NOTHING
    return printable(str(value)).replace("\n", " ").replace("\t", " ")


def printable(text: str) -> str:
    """The text without control characters, except line ends and tabs."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) != "Cc" else "\ufffd"
        for character in text
    )


def width(text: str) -> int:
    """Columns of a terminal it takes."""
    return sum(_columns(character) for character in text)


def cut(text: str, columns: int) -> str:
    """The text, cut to at most `columns` columns."""
    if width(text) <= columns:
        return text
    kept, taken = "", 0
    for character in text:
        taken += _columns(character)
        if taken > columns - 1:
            break
        kept += character
    return f"{kept}…" if columns > 0 else ""


def number(value: float | None, *, digits: int = 1) -> str:
    """1234.5 -> 1,234.5"""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def percent(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{100 * ratio:.1f}%"


def duration(seconds: float | None) -> str:
    """0.0123 -> 12 ms; 75 -> 75.0 s"""
    if seconds is None:
        return NOTHING
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def bandwidth(bytes_per_s: float | None) -> str:
    """1.25e9 -> 10 Gbit/s"""
    return NOTHING if bytes_per_s is None else prefixed(BITS_PER_BYTE * bytes_per_s, "bit/s")


def moment(text: str | None) -> str:
    """2026-01-02T03:04:05.678Z -> 2026-01-02 03:04:05"""
    return NOTHING if not text else text[:19].replace("T", " ")


# How fields are written, by the unit that ends their name.
_BY_UNIT: dict[str, Callable[[Any], str]] = {
    "_at": moment,
    "tokens_per_s": number,
    "gap": percent,
    "_ratio": percent,
    **dict.fromkeys(("hops", "price_per_hour"), partial(number, digits=2)),
    **dict.fromkeys(
        ("mean_prompt_tokens", "mean_output_tokens", "bytes_per_layer", "bytes_per_token"),
        partial(number, digits=0),
    ),
    "_s": duration,
}


def _padded(text: str, size: int, at_right: bool) -> str:
    blanks = " " * (size - width(text))
    return blanks + text if at_right else text + blanks


def _are_numbers(cells: Sequence[str]) -> bool:
    bare = [cell.replace(",", "").rstrip(" %") for cell in cells if cell != NOTHING]
    return bool(bare) and all(plain.replace(".", "", 1).lstrip("+-").isdecimal() for plain in bare)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
