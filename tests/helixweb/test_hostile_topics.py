"""Event streams: of rows that one may not see, and after one may no longer see them."""

import asyncio
from collections.abc import Callable

import pytest

from helixweb.common import broadcaster
from helixweb.common.sse import LONGEST_STREAM_S
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from tests.helixweb.stream_readers import (
    PAGES,
    REST,
    Reader,
    demoted,
    emit,
    in_thread,
    json_of,
    kept_out,
    key_revoked,
    logged_out,
)


@pytest.mark.parametrize(
    "topic",
    ["cluster:{other}", "metrics:{other}", "node:999", "plan-run:1", "agent:1", "coordinator:1",
     "rights:1", "rights:{user}", "cluster:{own},cluster:{other}", "cluster:", "*", "cluster:-1"],
)  # fmt: skip
def test_one_hears_nothing_of_what_one_may_not_see(
    reader: Reader, cluster: Cluster, topic: str
) -> None:
    other = records.create(Cluster, name="other")
    named = topic.format(own=cluster.pk, other=other.pk, user=reader.user.pk)
    for address in (PAGES, REST):
        answer = reader.browser.get(address, {"topics": named})
        assert answer.status_code in (400, 403, 404), address
    assert reader.browser.get(REST, {"topics": reader.topic}).status_code == 200


@pytest.mark.django_db(transaction=True)
async def test_a_stream_asks_again_in_the_end_who_reads_it() -> None:
    """A key or a session may have ended by its time."""
    stream = broadcaster.stream(["cluster:1"], place=None, longest_s=0.0)
    assert [piece async for piece in stream] == [b"retry: 2000\n\n"]
    assert 0 < LONGEST_STREAM_S <= 3600


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("waits_at_once", [True, False], ids=["waiting", "just asked"])
async def test_who_waits_for_events_hears_none_after_the_right_to_them_has_ended(
    reader: Reader, waits_at_once: bool
) -> None:
    answer = await reader.ask(REST, wait=60)
    waiting = asyncio.create_task(json_of(answer)) if waits_at_once else None
    if waiting is not None:
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
    await in_thread(demoted, reader)
    await emit(reader.topic, "node", {"secret": 1})
    async with asyncio.timeout(120):
        said = await (waiting or json_of(answer))
    assert said["events"] == []
    refused = await reader.ask(REST, wait=60)
    assert refused.status_code in (400, 403), refused.content


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ending", [demoted, kept_out, key_revoked, logged_out])
async def test_an_open_stream_ends_with_the_right_to_it(
    reader: Reader, ending: Callable[[Reader], None]
) -> None:
    async with reader.stream(REST if ending is key_revoked else PAGES) as pieces:
        await emit(reader.topic, "node", {"name": "tower"})
        assert b"tower" in await anext(pieces)
        await in_thread(ending, reader)
        assert await reader.is_cut_off(pieces)
