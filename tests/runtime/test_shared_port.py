"""Chat clients and stages at one port of a coordinator."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from free_port import free_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from runtime import link_measuring
from runtime.coordinator import shared_port
from runtime.coordinator.options import Options, parse_options
from runtime.coordinator.place import choose_data_port, with_hosts
from runtime.coordinator.shared_port import (
    PrivateSocket,
    private_socket,
    shared_with,
)
from runtime.http_process import HttpServer
from runtime.link_measuring import CannotMeasure, LinkAnswers, measure_link
from runtime.membership.data_address import AddressError
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import Kind, Message
from runtime.transport.port_check import listens
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import AsyncZmqTransport

PATIENCE_S = 90.0


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello " + (await request.body()).decode())


class Rig:
    """A server whose port leads to a door, too, and what listens behind it."""

    def __init__(self, inner: PrivateSocket) -> None:
        self.inner = inner
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        app = Starlette(routes=[Route("/", hello, methods=["POST"])])
        self.links = LinkAnswers(may_measure=lambda: True)
        self.server = HttpServer(app, protocol=shared_with(inner, self.links))


def with_coordinator(work: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        with private_socket() as inner:
            rig = Rig(inner)
            serving = asyncio.create_task(rig.server.serve(sockets=[rig.listener]))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await work(rig)
            finally:
                rig.server.should_exit = True
                await serving

    asyncio.run(run())


def test_requests_are_answered_and_frames_arrive_at_one_port() -> None:
    async def work(rig: Rig) -> None:
        keys = {name: KeyPair.generate() for name in ("coordinator", "stage")}
        coordinator = AsyncZmqTransport(
            name="coordinator", bind=rig.inner.zmq_endpoint, keys=keys["coordinator"]
        )
        stage = AsyncZmqTransport(name="stage", bind="tcp://127.0.0.1:0", keys=keys["stage"])
        try:
            coordinator.set_peers([address("stage", stage.endpoint, keys["stage"])])
            shared = f"tcp://127.0.0.1:{rig.port}"
            stage.set_peers([address("coordinator", shared, keys["coordinator"])])
            stage.send("coordinator", Message(kind=Kind.LEAVING, generation=7))
            (received,) = await coordinator.receive()
            assert received.sender == "stage"
            assert received.message.generation == 7
            async with httpx.AsyncClient() as client:
                answer = await client.post(f"http://127.0.0.1:{rig.port}/", content="x" * 100_000)
            assert answer.text == "hello " + "x" * 100_000
        finally:
            stage.close()
            coordinator.close()

    with_coordinator(work)


def test_a_stranger_gets_nothing_through_at_the_port_of_clients() -> None:
    async def work(rig: Rig) -> None:
        keys = {name: KeyPair.generate() for name in ("coordinator", "stage", "stranger")}
        coordinator = AsyncZmqTransport(
            name="coordinator", bind=rig.inner.zmq_endpoint, keys=keys["coordinator"]
        )
        sending = {
            name: AsyncZmqTransport(name="stage", bind="tcp://127.0.0.1:0", keys=keys[name])
            for name in ("stranger", "stage")
        }
        try:
            known = address("stage", sending["stage"].endpoint, keys["stage"])
            coordinator.set_peers([known])
            shared = f"tcp://127.0.0.1:{rig.port}"
            for generation, name in enumerate(sending):
                sending[name].set_peers([address("coordinator", shared, keys["coordinator"])])
                sending[name].send("coordinator", Message(kind=Kind.LEAVING, generation=generation))
            (received,) = await coordinator.receive()
            assert received.message.generation == 1  # the stranger's, sent before, is not there
        finally:
            for transport in (*sending.values(), coordinator):
                transport.close()

    with_coordinator(work)


def address(name: str, endpoint: str, keys: KeyPair) -> PeerAddress:
    return PeerAddress(name=name, endpoint=endpoint, public_key=keys.public_key)


def test_what_is_said_goes_both_ways_and_the_end_of_one_side_is_the_end_of_the_other() -> None:
    async def work(rig: Rig) -> None:
        heard: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()
        writers: list[asyncio.StreamWriter] = []

        def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.put_nowait(reader)
            writers.append(writer)

        server = await asyncio.start_unix_server(came, rig.inner.path)
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(b"\xffa")
        inner = await heard.get()
        assert await inner.readexactly(2) == b"\xffa"
        much = bytes(range(256)) * 40_000  # more than any buffer holds
        writer.write(much)
        assert await inner.readexactly(len(much)) == much
        writers[0].write(much)
        assert await reader.readexactly(len(much)) == much
        writer.write(b"last words")
        writer.close()
        assert await inner.read() == b"last words"
        writers[0].close()
        other, another = await asyncio.open_connection("127.0.0.1", rig.port)
        another.write(b"\xff")
        await heard.get()
        writers[1].close()
        assert await other.read() == b""
        another.close()
        server.close()

    with_coordinator(work)


def test_a_node_that_only_dials_out_measures_both_directions_of_its_link_to_a_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        link_measuring, "ORDER", replace(link_measuring.ORDER, most_bytes=10**7, most_s=0.05)
    )

    async def work(rig: Rig) -> None:
        endpoint = f"tcp://127.0.0.1:{rig.port}"
        rig.links.key = "k" * 32
        link = await measure_link(endpoint, key="k" * 32)
        assert min(link.sent.bytes_per_s, link.received.bytes_per_s) > 0
        with pytest.raises(CannotMeasure):
            await measure_link(endpoint, key="x" * 32)

    with_coordinator(work)


def test_a_method_that_begins_as_a_measurement_does_is_http() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        for part in (b"H", b"EAD / HTTP/1.1\r\nHost: here\r\n\r\n"):
            writer.write(part)
            await asyncio.sleep(0.05)
        assert await reader.readline() == b"HTTP/1.1 405 Method Not Allowed\r\n"
        writer.close()

    with_coordinator(work)


def test_a_port_check_is_greeted_while_stages_are_listened_to_and_only_then() -> None:
    async def work(rig: Rig) -> None:
        keys = KeyPair.generate()
        assert await checked(rig.port) is False  # closed: no stage is listened to
        coordinator = AsyncZmqTransport(name="c", bind=rig.inner.zmq_endpoint, keys=keys)
        assert await checked(rig.port) is True
        coordinator.close()

    with_coordinator(work)


async def checked(port: int) -> bool | None:
    return await asyncio.to_thread(listens, ("127.0.0.1", port), within_s=PATIENCE_S)


def test_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_port, "SILENT_S", 0.05)

    async def work(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        assert await reader.read() == b""
        writer.close()

    with_coordinator(work)


def test_a_server_ends_though_somebody_is_connected_and_says_nothing() -> None:
    async def work(rig: Rig) -> None:
        _, silent = await asyncio.open_connection("127.0.0.1", rig.port)
        stage = socket.create_connection(("127.0.0.1", rig.port))
        stage.send(b"\xff")
        rig.server.should_exit = True
        async with asyncio.timeout(PATIENCE_S):
            while rig.server.server_state.connections:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        silent.close()
        stage.close()

    with_coordinator(work)


def test_without_sockets_in_files_it_is_a_port_of_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_port, "_FAMILY", None)
    with private_socket() as inner:
        assert inner.zmq_endpoint == f"tcp://127.0.0.1:{inner.port}"
        with socket.create_server(("127.0.0.1", inner.port)):
            pass


def test_no_other_user_may_open_the_folder_of_the_socket() -> None:
    with private_socket() as inner:
        folder = Path(inner.path).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def options(*words: str) -> Options:
    return with_hosts(parse_options(["--server", "http://127.0.0.1:1", "--data-dir", "x", *words]))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ((), None),
        ((), 8100),
        (("--host", "0.0.0.0"), None),  # noqa: S104 - where it listens is what is tested
        (("--data-port", "8100"), None),
    ],
)
def test_stages_come_to_the_port_of_chat_clients(words: tuple[str, ...], kept: int | None) -> None:
    assert choose_data_port(options(*words), clients_port=8100, kept=kept) == (8100, True)


@pytest.mark.parametrize(
    "words", [("--data-security", "clear"), ("--port", "0"), ("--data-host", "127.0.0.2")]
)
def test_where_they_cannot_stages_have_a_port_of_their_own(words: tuple[str, ...]) -> None:
    _, is_shared = choose_data_port(options(*words), clients_port=8100, kept=None)
    assert not is_shared


def test_stages_that_move_to_another_address_have_a_port_of_their_own_there() -> None:
    kept = free_port()  # that of chat clients, and shared, until this start
    moved = options("--data-host", "127.0.0.2", "--port", str(kept))
    assert choose_data_port(moved, clients_port=kept, kept=kept) == (kept, False)


def test_a_port_of_their_own_is_kept() -> None:
    kept = free_port()
    assert choose_data_port(options("--data-port", "0"), clients_port=8100, kept=kept) == (
        kept,
        False,
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "198.51.100.1"])  # noqa: S104 - refused, not bound
def test_an_address_that_stages_cannot_dial_is_refused(host: str) -> None:
    with pytest.raises(AddressError, match=host):
        choose_data_port(
            options("--host", "0.0.0.0", "--data-host", host),  # noqa: S104
            clients_port=8100,
            kept=None,
        )
