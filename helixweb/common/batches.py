"""Changes many rows without keeping others from writing: short transactions, and rests between.

SQLite has one writer at a time and no queue of those that wait: each looks again at most a tenth of
a second later. So a rest is longer than that.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)
SIZE = 300
REST_S = 0.15


def in_batches(
    rows: QuerySet[Row],
    *,
    key: str,
    change: Callable[[QuerySet[Row]], object],
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """`change` all `rows`, `SIZE` at a time.

    `key` is a column of which no two of them share a value. What appears among rows that were
    passed already is left for the next time.
    """
    left = rows
    while batch := list(left.order_by(key).values_list("pk", key)[:SIZE]):
        change(rows.model._base_manager.filter(pk__in=[pk for pk, _ in batch]))
        if len(batch) < SIZE:
            return
        rest(REST_S)
        left = rows.filter(**{f"{key}__gt": batch[-1][1]})


def delete_in_batches(
    rows: QuerySet[Row], *, key: str, rest: Callable[[float], None] = time.sleep
) -> None:
    """Delete them all, likewise."""
    in_batches(rows, key=key, change=lambda batch: batch.delete(), rest=rest)
