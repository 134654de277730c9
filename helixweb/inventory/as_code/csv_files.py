"""Reads nodes and links from CSV files as spreadsheets write them, and writes such files."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from helixweb.common.spreadsheets import FORMULA_BEGINS, cell
from helixweb.inventory.as_code.documents import Declaration, decoded
from helixweb.inventory.as_code.kinds import LINKS, NODES, REGION_LINKS, Kind
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
                    _("The file has more than %(most)s lines; import it in parts.")
                    % {"most": f"{MOST_LINES:,}"}
                )
            if any(written.strip() for written in cells):
                _row(declaration, kind, columns, cells, line=reader.line_num, cluster=cluster)
    except csv.Error as error:
        raise InvalidProblem(
            _("Line %(line)s cannot be read (%(error)s); look at the quotes in it.")
            % {"line": reader.line_num, "error": error}
        ) from error
    return declaration


def write_csv(kind: Kind, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """With a header; each row with the name of its cluster."""
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
                _("Line 1: %(column)s is no column of %(kind)s; use: %(known)s.")
                % {"column": repr(column[:60]), "kind": kind.section, "known": ", ".join(known)}
            )
        if columns.count(column) > 1:
            raise InvalidProblem(
                _("Line 1: the column %(column)s is there twice; keep one.") % {"column": column}
            )
    for name in kind.key:
        if name not in columns:
            raise InvalidProblem(
                _("Line 1: the column %(column)s is missing; the first line names the columns.")
                % {"column": name}
            )
    if has_cluster == (_CLUSTER in columns):
        raise InvalidProblem(
            _("Line 1: name the cluster either in a column of the file or beside it, not both.")
            if has_cluster
            else _("Line 1: say which cluster, beside the file or in a column cluster.")
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
            _("It has %(count)s cells where the header has %(wanted)s columns.")
            % {"count": len(cells), "wanted": len(columns)},
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
                _("%(column)s: %(text)s is no number; write it like 1250000 or 1.25e9.")
                % {"column": column, "text": repr(text[:60])},
            )
            return
    if not cluster:
        declaration.errors.add(place, _("The cell of the column cluster is empty; name one."))
        return
    declaration.add(kind, values, place=place, cluster=cluster)


def _value(kind: Kind, column: str, text: str) -> Any:
    """As a document would have it. Raises ValueError."""
    if column == "tags":
        return [_without_apostrophe(word) for word in text.split()]
    if not kind.is_number(column):
        return _without_apostrophe(text)
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() else float(text)


def _cell(value: Any) -> Any:
    """As `_value` reads it; no text that a spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = " ".join(value) if isinstance(value, list) else str(value)
    return f"'{text}" if _without_apostrophe(text) != text else cell(text)


def _without_apostrophe(text: str) -> str:
    """What stands behind an apostrophe that only keeps spreadsheets from reading a formula."""
    rest = text[1:]
    guards = text.startswith("'") and rest.startswith((*FORMULA_BEGINS, "'"))
    return rest if guards else text
