"""Who reads streams of events in tests, and how the right to one ends while it is open."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.test import AsyncClient, Client

from helixweb.access import keys, people, roles_of_holders
from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.common import api_keys, events, open_streams
from helixweb.common.connections import returns_connection
from helixweb.inventory.models import Cluster

PAGES, REST = "/events", "/api/v1/events/"
PATIENCE = 20  # events, before a stream counts as one that goes on


async def in_thread(act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As another process would; the thread gives its connection back."""
    return await sync_to_async(returns_connection(act))(*args, **kwargs)


async def emit(topic: str, kind: str, data: dict[str, Any]) -> None:
    await in_thread(events.emit, topic, kind, data)


async def json_of(answer: Any) -> Any:
    """What an answer says that comes in pieces."""
    assert answer.status_code == 200, answer.content
    return json.loads(b"".join([piece async for piece in answer.streaming_content]))


class Reader:
    """A user who may see one cluster and nothing else, with a browser and with a key."""

    def __init__(self, name: str, cluster: Cluster, users: Any) -> None:
        self.user = users.create_user(name)
        Grant.objects.create(user=self.user, cluster=cluster, role=Role.VIEWER)
        self.topic = f"cluster:{cluster.pk}"
        self.key = api_keys.create_api_key(name="k", user=self.user, scopes=["read"])
        self.browser = Client()
        self.browser.force_login(self.user)
        # All pages are loaded then, as when a site has started.
        assert self.browser.get("/").status_code == 200

    async def ask(self, address: str, **more: Any) -> Any:
        """For a stream, or for what came since a place if more is said."""
        client, headers = AsyncClient(), {}
        if address == PAGES:
            client.cookies = self.browser.cookies
        else:
            headers["Authorization"] = f"Bearer {self.key.secret}"
            if not more:
                headers["Accept"] = "text/event-stream"
        return await client.get(address, {"topics": self.topic, **more}, headers=headers)

    @asynccontextmanager
    async def stream(self, address: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open within, and closed after that as when its reader goes away."""
        answer = await self.ask(address)
        assert answer.status_code == 200, answer.content
        pieces = answer._iterator  # which `streaming_content` wraps again each time
        assert await anext(pieces) == b"retry: 2000\n\n"
        number = open_streams.count(self.user.pk)
        yield pieces
        await pieces.aclose()
        # The test client has wrapped it, and leaves it to Python, which says nothing.
        async with asyncio.timeout(30):
            while open_streams.count(self.user.pk) == number:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def is_cut_off(self, pieces: AsyncIterator[bytes]) -> bool:
        """Whether a stream ends, and has said nothing that happened since."""
        for number in range(PATIENCE):
            await emit(self.topic, "node", {"secret": number})
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return True
            if b"secret" in piece:
                return False
        return False


# How the right to a stream ends.


def demoted(reader: Reader) -> None:
    roles_of_holders.withdraw(Grant.objects.get(user=reader.user))


def kept_out(reader: Reader) -> None:
    admin = type(reader.user).objects.create_superuser("root")
    people.set_active(reader.user, is_active=False, by=admin)


def key_revoked(reader: Reader) -> None:
    keys.end(reader.key)


def logged_out(reader: Reader) -> None:
    reader.browser.post("/logout/")
