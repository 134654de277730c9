"""Many rows are changed in short transactions, with rests in which others write."""

import pytest
from django.db import connection, transaction

from helixweb.common.batches import REST_S, SIZE, delete_in_batches, in_batches
from helixweb.common.models import Event


def write_events(count: int) -> None:
    Event.objects.bulk_create(
        Event(topic="cluster:1", type="event", data={"number": number}) for number in range(count)
    )


@pytest.mark.django_db
def test_every_row_is_changed_once_and_a_rest_follows_every_batch_but_the_last() -> None:
    write_events(3 * SIZE - 1)
    batches: list[int] = []
    rests_s: list[float] = []
    in_batches(
        Event.objects.all(),
        key="id",
        change=lambda batch: batches.append(batch.update(type="seen")),
        rest=rests_s.append,
    )
    assert batches == [SIZE, SIZE, SIZE - 1]
    assert Event.objects.filter(type="seen").count() == 3 * SIZE - 1
    assert rests_s == [REST_S] * 2


@pytest.mark.django_db(transaction=True)
def test_others_can_write_while_it_rests() -> None:
    write_events(SIZE + 1)
    written = []

    def write(_: float) -> None:
        assert not connection.in_atomic_block
        with transaction.atomic():
            written.append(Event.objects.create(topic="cluster:2", type="event").pk)

    delete_in_batches(Event.objects.filter(topic="cluster:1"), key="pk", rest=write)
    assert list(Event.objects.values_list("pk", flat=True)) == written
    assert len(written) == 1
