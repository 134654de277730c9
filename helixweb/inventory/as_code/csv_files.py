"""Reads nodes and links from CSV files as spreadsheets write them, and writes such files."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from helixweb.common.spreadsheets import FORMULA_BEGINS, cell
from helixweb.inventory.as_code.documents import (
    LINKS,
    NODES,
    REGION_LINKS,
    Declaration,
    Kind,
    decoded,
)
from planner import InvalidProblem

KINDS = {kind.section: kind for kind in (NODES, LINKS, REGION_LINKS)}
MOST_LINES = 200_000
_DELIMITERS = (",", ";", "\t")
_CLUSTER = "cluster"


def read_csv(content: bytes, *, kind: Kind, cluster: str) -> Declaration:
    """Rows of `kind`, of `cluster` or of the one that the column cluster names.

    A column that is left out says nothing; an empty cell says that there is no value, where that
    can be. Raises InvalidProblem where the file as a whole cannot be read; rows go to `errors`.
    """
    text = decoded(content)
    delimiter = _delimiter(text.partition("\n")[0], kind)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    declaration = Declaration()
    try:
        columns = _columns(next(reader, []), kind, has_cluster=bool(cluster))
        for cells in reader:
            if reader.line_num > MOST_LINES:
                raise InvalidProblem(
                    f"The file has more than {MOST_LINES:,} lines; import it in parts."
                )
            if any(written.strip() for written in cells):
                _row(declaration, kind, columns, cells, line=reader.line_num, cluster=cluster)
    except csv.Error as error:
        raise InvalidProblem(
            f"Line {reader.line_num} cannot be read ({error}); look at the quotes in it."
        ) from error
    return declaration


def write_csv(kind: Kind, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Rows as CSV with a header; each has the name of its cluster."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_CLUSTER, *kind.keys])
    for cluster, values in rows:
        writer.writerow([cluster, *(_cell(values.get(key)) for key in kind.keys)])
    return out.getvalue()


def _delimiter(header: str, kind: Kind) -> str:
    """The one that makes most known columns of the header."""
    known = {*kind.keys, _CLUSTER}

    def hits(delimiter: str) -> int:
        cells = next(csv.reader([header], delimiter=delimiter), [])
        return len(known & {name.strip().lower() for name in cells})

    return max(_DELIMITERS, key=hits)


def _columns(header: list[str], kind: Kind, *, has_cluster: bool) -> list[str]:
    columns = [name.strip().lower() for name in header]
    known = (*kind.keys, _CLUSTER)
    for column in columns:
        if column not in known:
            raise InvalidProblem(
                f"Line 1: {column[:60]!r} is no column of {kind.section}; use: {', '.join(known)}."
            )
        if columns.count(column) > 1:
            raise InvalidProblem(f"Line 1: the column {column} is there twice; keep one.")
    for name in kind.key:
        if name not in columns:
            raise InvalidProblem(
                f"Line 1: the column {name} is missing; the first line names the columns."
            )
    if has_cluster == (_CLUSTER in columns):
        raise InvalidProblem(
            "Line 1: name the cluster either in a column of the file or beside it, not both."
            if has_cluster
            else "Line 1: say which cluster, beside the file or in a column cluster."
        )
    return columns


def _row(
    declaration: Declaration,
    kind: Kind,
    columns: list[str],
    cells: list[str],
    *,
    line: int,
    cluster: str,
) -> None:
    place = f"line {line}"
    if len(cells) != len(columns):
        declaration.errors.add(
            place,
            f"It has {len(cells)} cells where the header has {len(columns)} columns.",
        )
        return
    values: dict[str, Any] = {}
    for column, written in zip(columns, cells, strict=True):
        text = written.strip()
        if column == _CLUSTER:
            cluster = text
            continue
        try:
            if text or kind.may_be_empty(column):
                values[column] = _value(kind, column, text)
        except ValueError:
            declaration.errors.add(
                place,
                f"{column}: {text[:60]!r} is no number; write it like 1250000 or 1.25e9.",
            )
            return
    if not cluster:
        declaration.errors.add(place, "The cell of the column cluster is empty; name one.")
        return
    declaration.add(kind, values, place=place, cluster=cluster)


def _value(kind: Kind, column: str, text: str) -> Any:
    """A cell's text as the value in a document. Raises ValueError."""
    if column == "tags":
        return [_without_apostrophe(word) for word in text.split()]
    if not kind.is_number(column):
        return _without_apostrophe(text)
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() else float(text)


def _cell(value: Any) -> Any:
    """A value as text that `_value` reads; escaped if a spreadsheet would take it for a formula."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = " ".join(value) if isinstance(value, list) else str(value)
    return f"'{text}" if _without_apostrophe(text) != text else cell(text)


def _without_apostrophe(text: str) -> str:
    """The value without an apostrophe that only keeps spreadsheets from reading a formula."""
    rest = text[1:]
    guards = text.startswith("'") and rest.startswith((*FORMULA_BEGINS, "'"))
    return rest if guards else text
