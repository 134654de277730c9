"""Many rows are changed in short transactions, with rests in which others write."""

import pytest
from django.db import connection, transaction

from helixweb.common.batches import (
    FEWEST,
    MOST,
    REST_S,
    TAKES_S,
    delete_in_batches,
    in_batches,
    next_size,
)
from helixweb.common.models import Event


class Work:
    """Notes batches and rests; a row takes `row_s` seconds of a clock of its own."""

    def __init__(self, row_s: float) -> None:
        self.row_s = row_s
        self.now_s = 0.0
        self.batches: list[int] = []
        self.rests_s: list[float] = []

    def change(self, size: int) -> None:
        self.batches.append(size)
        self.now_s += self.row_s * size

    def rest(self, seconds: float) -> None:
        self.rests_s.append(seconds)


def write_events(count: int) -> None:
    Event.objects.bulk_create(
        Event(topic="cluster:1", type="event", data={"number": number}) for number in range(count)
    )


def work_on_events(row_s: float) -> Work:
    work = Work(row_s)
    in_batches(
        Event.objects.all(),
        key="id",
        change=lambda batch: work.change(batch.update(type="seen")),
        clock=lambda: work.now_s,
        rest=work.rest,
    )
    return work


@pytest.mark.django_db
@pytest.mark.parametrize("row_s", [1e-5, 2e-4, 1e-2])
def test_every_row_is_changed_once_and_no_transaction_is_long_but_of_the_fewest(
    row_s: float,
) -> None:
    write_events(900)
    work = work_on_events(row_s)
    assert sum(work.batches) == Event.objects.filter(type="seen").count() == 900
    assert work.batches[0] == FEWEST
    for size in work.batches[1:]:
        assert size <= FEWEST or size * row_s <= TAKES_S * 1.01


@pytest.mark.django_db
@pytest.mark.parametrize(("row_s", "rest_s"), [(2e-3, 0.2), (5e-4, REST_S)])
def test_a_rest_follows_every_batch_but_the_last_and_is_no_shorter_than_it(
    row_s: float, rest_s: float
) -> None:
    write_events(3 * FEWEST - 1)
    work = work_on_events(row_s)
    assert work.batches == [FEWEST, FEWEST, FEWEST - 1]
    assert work.rests_s == [pytest.approx(rest_s)] * 2


@pytest.mark.django_db(transaction=True)
def test_others_can_write_while_it_rests() -> None:
    write_events(FEWEST + 1)
    written = []

    def write(_: float) -> None:
        assert not connection.in_atomic_block
        with transaction.atomic():
            written.append(Event.objects.create(topic="cluster:2", type="event").pk)

    delete_in_batches(Event.objects.filter(topic="cluster:1"), key="pk", rest=write)
    assert list(Event.objects.values_list("pk", flat=True)) == written
    assert len(written) == 1


@pytest.mark.parametrize(
    ("size", "took_s", "expected"),
    [
        (400, TAKES_S, 400),
        (400, 2 * TAKES_S, 200),
        (400, 10 * TAKES_S, FEWEST),
        (400, TAKES_S / 1.5, 600),
        (400, TAKES_S / 100, 800),
        (400, 0.0, 800),
        (MOST, 0.0, MOST),
        (FEWEST, 100.0, FEWEST),
    ],
)
def test_the_next_batch_is_as_large_as_its_time_allows(
    size: int, took_s: float, expected: int
) -> None:
    assert next_size(size, took_s) == expected
