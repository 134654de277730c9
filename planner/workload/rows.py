"""Rows of whole numbers from CSV traces, with errors that name the row."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from planner.domain.limits import MAX_COUNT
from planner.workload.request import InvalidWorkload


def whole_rows(path: Path, *columns: str, minimum: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(file and row number, values of `columns`) of every row; the header is row 1."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            header = reader.fieldnames or []
            for column in columns:
                if column not in header:
                    raise InvalidWorkload(
                        f"{path}: the header {','.join(header)!r} has no column {column!r}; "
                        f"the columns must be {','.join(columns)}"
                    )
            for number, row in enumerate(reader, start=2):
                where = f"{path}, row {number}"
                yield (
                    where,
                    tuple(
                        _whole(row[column], f"{where}: {column}", minimum=minimum)
                        for column in columns
                    ),
                )
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidWorkload(f"{path} is not CSV text in UTF-8 ({error})") from None


def _whole(text: str | None, where: str, *, minimum: int) -> int:
    if text is None or not text.strip():
        raise InvalidWorkload(f"{where} is missing; write a whole number of {minimum} or more")
    if not re.fullmatch("[-+]?[0-9]{1,300}", text.strip()):
        raise InvalidWorkload(
            f"{where} is {text[:40]!r}; write a whole number of {minimum} or more"
        )
    value = int(text)
    if value < minimum:
        raise InvalidWorkload(f"{where} is {value}; it must be {minimum} or more")
    if value > MAX_COUNT:
        raise InvalidWorkload(f"{where} is {text[:40]}; it must be at most {MAX_COUNT}")
    return value
