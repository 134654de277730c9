"""Changes many rows without keeping others from writing: short transactions, and rests between.

SQLite has one writer at a time and no queue of those that wait: each looks again at most a tenth of
a second later. So a rest is longer than that, and no shorter than what came before it.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)
# A transaction takes about this long, whatever the rows; and on a machine that is too busy for even
# the fewest, which take some milliseconds of work, as long as it has to.
TAKES_S = 0.05
REST_S = 0.15
FEWEST, MOST = 100, 2000


def in_batches(
    rows: QuerySet[Row],
    *,
    key: str,
    change: Callable[[QuerySet[Row]], object],
    clock: Callable[[], float] = time.monotonic,
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """`change` all `rows`, some at a time.

    `key` is a column of which no two of them share a value. What appears among rows that were
    passed already is left for the next time.
    """
    size, left = FEWEST, rows
    while batch := list(left.order_by(key).values_list("pk", key)[:size]):
        began_s = clock()
        change(rows.model._base_manager.filter(pk__in=[pk for pk, _ in batch]))
        took_s = clock() - began_s
        if len(batch) < size:
            return
        rest(max(REST_S, took_s))
        left = rows.filter(**{f"{key}__gt": batch[-1][1]})
        size = next_size(size, took_s)


def delete_in_batches(
    rows: QuerySet[Row], *, key: str, rest: Callable[[float], None] = time.sleep
) -> None:
    """Delete them all, likewise."""
    in_batches(rows, key=key, change=lambda batch: batch.delete(), rest=rest)


def next_size(size: int, took_s: float) -> int:
    """Rows that take `TAKES_S` if `size` of them took `took_s`; at most twice as many at once."""
    fitting = 2.0 * size if took_s <= 0 else size * TAKES_S / took_s
    return max(FEWEST, min(MOST, round(min(fitting, 2.0 * size))))
