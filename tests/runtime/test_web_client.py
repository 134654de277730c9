"""The control client against a real server over loopback."""

import asyncio
import itertools
import random
import socket
from collections.abc import Iterator

import httpx
import pytest
from fake_web import PATIENCE_S, TOKEN, FakeWeb
from hypothesis import given
from hypothesis import strategies as st

from runtime.backoff import Backoff
from runtime.protocol.control import (
    CoordinatorDesired,
    DesiredState,
    Hardware,
    RegisterReply,
    RegisterRequest,
    Role,
)
from runtime.protocol.server_events import ServerEvent, ServerEventReader
from runtime.web_client import (
    BadServerAddress,
    ServerRefused,
    ServerUnreachable,
    WebClient,
    check_server,
)

REQUEST = RegisterRequest(
    join_token=TOKEN,
    role=Role.NODE,
    node_uuid="0" * 32,
    name="n1",
    hardware=Hardware(hostname="h", cpu_count=1, memory_bytes=1, memory_budget_bytes=1),
    data_endpoint="tcp://127.0.0.1:1",
    data_public_key="k" * 40,
)


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb() as fake:
        yield fake


def parsed(chunks: list[bytes], last_id: str = "") -> list[ServerEvent]:
    reader = ServerEventReader(last_id=last_id)
    return [event for chunk in chunks for event in reader.feed(chunk)]


def test_a_registered_client_is_admitted_and_a_used_token_is_refused_with_the_reason(
    web: FakeWeb,
) -> None:
    async def talk() -> None:
        async with WebClient(web.url) as client:
            with pytest.raises(ServerRefused, match="401") as unknown:
                await client.agent_desired()
            assert unknown.value.is_unknown
            assert unknown.value.is_final
            web.is_gated = True
            with pytest.raises(ServerRefused, match="401") as gated:
                await client.agent_desired()
            assert not gated.value.is_unknown
            assert not gated.value.is_final
            web.is_gated = False
            reply = await client.register(REQUEST)
            assert reply.cluster == "test"
            assert await client.agent_desired() == DesiredState(generation=0)
            with pytest.raises(ServerRefused) as used:
                await client.register(REQUEST.model_copy(update={"node_uuid": "1" * 32}))
            assert (used.value.status, used.value.title) == (403, "Forbidden")
            assert used.value.detail == "The join token is unknown or used; copy a fresh one."

    asyncio.run(talk())


def test_a_server_that_is_not_there_is_named() -> None:
    async def talk() -> None:
        async with WebClient("http://127.0.0.1:9") as client:
            with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9 does not answer"):
                await client.agent_desired()

    asyncio.run(talk())


def test_trouble_of_the_server_is_not_final(web: FakeWeb) -> None:
    web.troubled_answers = 1

    async def talk() -> None:
        async with WebClient(web.url) as client:
            with pytest.raises(ServerRefused, match="database is busy") as refused:
                await client.register(REQUEST)
            assert not refused.value.is_final

    asyncio.run(talk())


def test_a_server_that_takes_too_long_is_reported_by_the_kind_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What httpx raises then has no message of its own."""
    monkeypatch.setattr("runtime.web_client._CALL_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def talk() -> None:
            async with WebClient(url) as client:
                await client.agent_desired()

        with pytest.raises(ServerUnreachable, match="does not answer: ReadTimeout"):
            asyncio.run(talk())


def test_an_answer_that_is_no_problem_document_is_shown(web: FakeWeb) -> None:
    web.proxy_answers = 1

    async def talk() -> None:
        async with WebClient(web.url) as client:
            with pytest.raises(ServerRefused, match=r"502 Bad Gateway.*some proxy") as refused:
                await client.register(REQUEST)
            assert not refused.value.is_final
            assert "<" not in str(refused.value), "a page is not shown as its source"

    asyncio.run(talk())


def test_a_join_whose_answer_was_lost_is_asked_for_again_and_done_once(web: FakeWeb) -> None:
    web.lost_answers = 1

    async def talk() -> str:
        async with WebClient(web.url) as client:
            with pytest.raises(ServerRefused, match="at work") as refused:
                await client.register(REQUEST)
            assert not refused.value.is_final
            return (await client.register(REQUEST)).credential

    assert asyncio.run(talk()) in web.credentials
    assert len(web.registrations) == 1


def test_an_answer_of_another_kind_is_named(web: FakeWeb) -> None:
    async def talk() -> None:
        async with WebClient(web.url) as client:
            await client.register(REQUEST)
            web.desired = CoordinatorDesired(generation=1, api_key_hashes=("a",))  # type: ignore[assignment]
            with pytest.raises(ServerRefused, match=r"not a DesiredState: plan"):
                await client.agent_desired()

    asyncio.run(talk())


def test_a_credential_in_an_answer_that_is_not_understood_is_not_shown() -> None:
    reply = {"name": "n1", "cluster": "c", "credential": "hlxa_secret", "heartbeat_interval_s": 0}

    async def talk() -> None:
        async with WebClient("http://127.0.0.1:9") as client:
            client._http = httpx.AsyncClient(
                base_url="http://helix",
                transport=httpx.MockTransport(lambda _: httpx.Response(200, json=reply)),
            )
            with pytest.raises(ServerRefused, match="heartbeat_interval_s") as refused:
                await client.register(REQUEST)
            assert "hlxa_secret" not in str(refused.value)

    asyncio.run(talk())


def test_no_secret_is_in_the_repr_of_a_message() -> None:
    assert TOKEN not in repr(REQUEST)
    reply = RegisterReply(name="n", cluster="c", credential="hlxa_secret", heartbeat_interval_s=1)
    assert "hlxa_secret" not in repr(reply)


def test_desired_states_go_on_after_the_server_was_away(web: FakeWeb) -> None:
    async def talk() -> None:
        async with WebClient(web.url, rng=random.Random(1)) as client:
            await client.register(REQUEST)
            states = client.desired_states(DesiredState)
            assert (await anext(states)).generation == 0
            web.desired = DesiredState(generation=1)
            assert (await anext(states)).generation == 1
            await asyncio.to_thread(web.stop)
            web.desired = DesiredState(generation=2)
            await asyncio.to_thread(web.start)
            assert (await asyncio.wait_for(anext(states), PATIENCE_S)).generation == 2
            web.remove_all()
            await asyncio.to_thread(web.stop)
            await asyncio.to_thread(web.start)
            with pytest.raises(ServerRefused, match="401"):
                await asyncio.wait_for(anext(states), PATIENCE_S)

    asyncio.run(talk())


@pytest.mark.parametrize("server", ["", "helix.example.org", "ftp://x", "http://", "http://[::1"])
def test_what_is_no_server_address_is_refused(server: str) -> None:
    with pytest.raises(BadServerAddress, match="--server"):
        check_server(server)


def test_plain_http_is_warned_of_except_on_this_machine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for quiet in ("http://127.0.0.1:8000", "http://localhost", "https://helix.example.org"):
        check_server(quiet)
    assert not caplog.records
    check_server("http://helix.example.org")
    assert "travel in clear" in caplog.text


def test_events_are_read_as_the_standard_says() -> None:
    stream = (
        b": comment\n:\n\nretry: 5\n\nid: 7\nevent: desired\ndata: {\r\ndata:  1}\n\n"
        b"data\n\ndata: x\xe2\x80\xa8y\n\nevent: unfinished\ndata: z\n"
    )
    assert parsed([stream]) == [
        ServerEvent(event="desired", data="{\n 1}", id="7"),
        ServerEvent(event="message", data="", id="7"),
        ServerEvent(event="message", data="x\u2028y", id="7"),
    ]
    assert parsed([b"data: a\n\n"], last_id="3")[0].id == "3"


@given(cuts=st.lists(st.integers(0, 40)))
def test_where_the_stream_is_cut_does_not_matter(cuts: list[int]) -> None:
    stream = "id: 1\nevent: ä\ndata: ö\n\ndata: ü\r\n\r\n".encode()
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(bounds)]
    assert parsed(chunks) == parsed([stream])


def test_waits_double_up_to_the_limit_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(rng=random.Random(3), first_s=1.0, limit_s=5.0)
    for ceiling_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert ceiling_s / 2 <= backoff.next_s() <= ceiling_s
    backoff.reset()
    assert backoff.next_s() <= 1.0
