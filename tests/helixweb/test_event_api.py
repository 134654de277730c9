"""Programs hear what happens: by a stream, or by asking and waiting."""

import asyncio
from typing import Any

import pytest
from django.test import AsyncClient
from rest_framework.test import APIClient

from helixweb.common.api_keys import create_api_key
from helixweb.inventory.models import Cluster
from tests.helixweb.looking import answered
from tests.helixweb.stream_readers import REST, emit, json_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def client(user: Any) -> AsyncClient:
    key = create_api_key(name="reads", user=user, scopes=["read"]).secret
    return AsyncClient(Authorization=f"Bearer {key}")


async def asked(client: AsyncClient, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = await json_of(await client.get(REST, query))
    return found


async def test_events_since_a_place_are_told_at_once(client: AsyncClient, cluster: Cluster) -> None:
    topic = f"cluster:{cluster.pk}"

    begin = await asked(client, topics=topic)
    assert begin["events"] == []
    await emit(topic, "node", {"name": "tower"})
    await emit("cluster:0", "node", {"name": "not ours"})
    await emit(topic, "node", {"name": "mini"})
    told = await asked(client, topics=topic, after=begin["after"], wait=30)
    assert [event["data"] for event in told["events"]] == [{"name": "tower"}, {"name": "mini"}]
    assert {(event["type"], event["topic"]) for event in told["events"]} == {("node", topic)}
    since_first = await asked(client, topics=topic, after=told["events"][0]["id"])
    assert [event["data"]["name"] for event in since_first["events"]] == ["mini"]
    assert (await asked(client, topics=topic, after=told["after"]))["events"] == []


async def test_who_waits_is_answered_when_something_comes(
    client: AsyncClient, cluster: Cluster
) -> None:
    topic = f"cluster:{cluster.pk}"

    begin = await asked(client, topics=topic)
    waiting = asyncio.create_task(asked(client, topics=topic, after=begin["after"], wait=60))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    await emit(topic, "node", {"name": "tower"})
    told = await asyncio.wait_for(waiting, 120)
    assert [event["data"]["name"] for event in told["events"]] == ["tower"]


async def test_who_waits_in_vain_goes_on_from_that_place(
    client: AsyncClient, cluster: Cluster
) -> None:
    topic = f"cluster:{cluster.pk}"
    begin = await asked(client, topics=topic)
    again = await asked(client, topics=topic, after=begin["after"], wait=0.01)
    assert again == {"events": [], "after": begin["after"]}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "topics"),
        ({"topics": ","}, "topics"),
        ({"topics": "agent:1"}, "topics"),
        ({"topics": "cluster:999"}, "topics"),
        ({"topics": "node:999,plan-run:999"}, "topics"),
        ({"topics": "cluster:1", "wait": "61"}, "wait"),
        ({"topics": "cluster:1", "wait": "soon"}, "wait"),
        ({"topics": "cluster:1", "after": "yesterday"}, "after"),
        ({"topics": "cluster:1", "colour": "red"}, "colour"),
    ],
)
def test_what_makes_no_sense_is_refused(
    api: APIClient, cluster: Cluster, query: dict[str, str], field: str
) -> None:
    answer = answered(api.get(REST, query), 400)
    assert [error["field"] for error in answer.json()["errors"]] == [field]
