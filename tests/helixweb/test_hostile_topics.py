"""Event streams: of rows that one may not see, and after one may no longer see them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient, Client

from helixweb.access import keys, people, roles_of_holders
from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.common import api_keys, broadcaster, events
from helixweb.common.connections import returns_connection
from helixweb.common.sse import LONGEST_STREAM_S
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from tests.helixweb.looking import browser_of

PATIENCE = 20  # events, before a stream counts as one that goes on


@pytest.fixture
def viewer(cluster: Cluster, django_user_model: Any) -> Any:
    """Of one cluster, and of nothing else."""
    user = django_user_model.objects.create_user("vera")
    Grant.objects.create(user=user, cluster=cluster, role=Role.VIEWER)
    return user


@pytest.mark.parametrize(
    "topic",
    ["cluster:{other}", "metrics:{other}", "node:999", "plan-run:1", "agent:1", "coordinator:1",
     "rights:1", "rights:{user}", "cluster:{own},cluster:{other}", "cluster:", "*", "cluster:-1"],
)  # fmt: skip
def test_nobody_listens_to_what_they_may_not_see(viewer: Any, cluster: Cluster, topic: str) -> None:
    other = records.create(Cluster, name="other")
    named = topic.format(own=cluster.pk, other=other.pk, user=viewer.pk)
    browser = browser_of(viewer)
    for address in ("/events", "/api/v1/events/"):
        answer = browser.get(address, {"topics": named})
        assert answer.status_code in (400, 403, 404), address
    assert browser.get("/api/v1/events/", {"topics": f"cluster:{cluster.pk}"}).status_code == 200


def demoted(user: Any, key: Any, session: Client) -> None:
    roles_of_holders.withdraw(Grant.objects.get(user=user))


def kept_out(user: Any, key: Any, session: Client) -> None:
    admin = type(user).objects.create_superuser("root")
    people.set_active(user, is_active=False, by=admin)


def key_revoked(user: Any, key: Any, session: Client) -> None:
    keys.end(key)


def logged_out(user: Any, key: Any, session: Client) -> None:
    session.post("/logout/")


@pytest.mark.django_db(transaction=True)
def test_a_stream_asks_anew_in_the_end_who_reads_it() -> None:
    """A key or a session may have ended by its time."""

    @async_to_sync
    async def scenario() -> list[bytes]:
        stream = broadcaster.stream(["cluster:1"], place=None, longest_s=0.0)
        return [piece async for piece in stream]

    assert scenario() == [b"retry: 2000\n\n"]
    assert 0 < LONGEST_STREAM_S <= 3600


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("waits_at_once", [True, False], ids=["waiting", "just asked"])
def test_who_waits_for_events_hears_none_after_the_right_to_them_has_ended(
    viewer: Any, cluster: Cluster, waits_at_once: bool
) -> None:
    new = api_keys.create_api_key(name="k", user=viewer, scopes=["read"])
    topic = f"cluster:{cluster.pk}"
    emit = sync_to_async(returns_connection(events.emit))

    async def body(answer: Any) -> Any:
        return json.loads(b"".join([part async for part in answer.streaming_content]))

    @async_to_sync
    async def scenario() -> None:
        client, asked = AsyncClient(), {"topics": topic, "wait": 60}
        key = {"Authorization": f"Bearer {new.secret}"}
        answer: Any = await client.get("/api/v1/events/", asked, headers=key)
        assert answer.status_code == 200, answer.content
        waiting = asyncio.create_task(body(answer)) if waits_at_once else None
        if waiting is not None:
            done, _ = await asyncio.wait({waiting}, timeout=0.05)
            assert not done
        await sync_to_async(returns_connection(demoted))(viewer, new, Client())
        await emit(topic, "node", {"secret": 1})
        async with asyncio.timeout(120):
            told = await (waiting or body(answer))
        assert told["events"] == []
        refused: Any = await client.get("/api/v1/events/", asked, headers=key)
        assert refused.status_code in (400, 403), refused.content

    scenario()


async def ends(stream: AsyncIterator[bytes], topic: str) -> bool:
    """Whether it does, and has told nothing that happened since."""
    emit = sync_to_async(returns_connection(events.emit))
    for number in range(PATIENCE):
        await emit(topic, "node", {"secret": number})
        try:
            piece = await anext(stream)
        except StopAsyncIteration:
            return True
        if b"secret" in piece:
            return False
    return False


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ending", [demoted, kept_out, key_revoked, logged_out])
def test_an_open_stream_ends_with_the_right_to_it(
    viewer: Any, cluster: Cluster, ending: Callable[[Any, Any, Client], None]
) -> None:
    new = api_keys.create_api_key(name="k", user=viewer, scopes=["read"])
    topic = f"cluster:{cluster.pk}"
    session = browser_of(viewer)
    assert session.get("/").status_code == 200  # all pages are loaded, as when a site has started

    @async_to_sync
    async def scenario() -> bool:
        client = AsyncClient()
        if ending is key_revoked:
            answer: Any = await client.get(
                "/api/v1/events/",
                {"topics": topic},
                headers={
                    "Authorization": f"Bearer {new.secret}",
                    "Accept": "text/event-stream",
                },
            )
        else:
            client.cookies = session.cookies
            answer = await client.get("/events", {"topics": topic})
        assert answer.status_code == 200
        stream = aiter(answer.streaming_content)
        await anext(stream)
        await sync_to_async(returns_connection(ending))(viewer, new, session)
        over = await ends(stream, topic)
        await answer.streaming_content.aclose()
        return over

    assert scenario()
