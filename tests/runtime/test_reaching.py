"""What a process finds of the data ports and links of others: over real sockets of this machine."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from subprocess import PIPE

import pytest
from free_port import free_port

from runtime import link_measuring, reaching
from runtime.link_measuring import CannotMeasure, LinkListener, measure_link
from runtime.protocol.ports import machine_turn
from runtime.protocol.reach import LinksToMeasure, cannot_reach, digest_of
from runtime.reaching import REFUSED, Reaching, why_unreachable
from runtime.transport import send_stream
from tests.programs import started

PATIENCE_S = 60.0
KEY = "k" * 32
HOLDER = "from runtime.protocol.ports import take_any_port as t; print(t('127.0.0.1')); input()"


def why(port: int, *, own_port: int = 1) -> str:
    return asyncio.run(why_unreachable(f"tcp://127.0.0.1:{port}", own_port=own_port))


def test_a_port_that_answers_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        assert why(port) == ""
        assert why(port, own_port=port) == "loopback leads to this process itself"


def test_a_closed_port_is_told_from_one_that_no_process_of_this_machine_has() -> None:
    with started(
        [sys.executable, "-u", "-c", HOLDER], stdin=PIPE, stdout=PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        assert why(port) == REFUSED
        holder.communicate("\n")
    assert why(port) == "loopback leads to no process of this machine"


@pytest.mark.skipif(sys.platform != "linux", reason="others refuse what a full queue cannot take")
def test_a_firewall_that_drops_packets_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "WITHIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        queued = [socket.socket() for _ in range(4)]  # the kernel drops what does not fit
        for one in queued:
            one.setblocking(False)
            one.connect_ex(silent.getsockname())
        assert why(silent.getsockname()[1]) == "no answer within 0.05 s"
        for one in queued:
            one.close()


def test_what_fails_is_tried_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "FAILING_AGAIN_S", 0.01)
    endpoint = f"tcp://127.0.0.1:{free_port()}"

    async def follow() -> None:
        changed = asyncio.Event()
        own = Reaching(own_endpoint="tcp://127.0.0.1:1", on_change=changed.set)

        async def until(is_so: Callable[[], bool]) -> None:
            while not is_so():
                await changed.wait()
                changed.clear()

        running = asyncio.create_task(own.run())
        own.want((endpoint,))
        await until(lambda: endpoint in own.state.failing)
        assert own.state.tried == digest_of((endpoint,))
        port = int(endpoint.rpartition(":")[2])
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        await until(lambda: not own.state.failing)
        own.want(None)
        assert own.state.tried == digest_of((endpoint,)), "none of the list changed"
        own.want(())
        await until(lambda: own.state.tried == "")
        server.close()
        running.cancel()

    asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))


def test_one_more_machine_has_only_its_own_port_tried() -> None:
    async def follow() -> None:
        changed, connections = asyncio.Event(), 0

        def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            writer.close()

        own = Reaching(own_endpoint="tcp://127.0.0.1:1", on_change=changed.set)
        running = asyncio.create_task(own.run())
        server = await asyncio.start_server(count, "127.0.0.1", 0)
        known = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        closed = f"tcp://127.0.0.1:{free_port()}"
        for endpoints in ((known,), (known, closed), (closed, known)):
            own.want(endpoints)
            while own.state.tried != digest_of(endpoints):
                await changed.wait()
                changed.clear()
        assert own.state.failing.keys() == {closed}
        assert connections == 1
        own.want((known,))
        while own.state.failing:
            await changed.wait()
            changed.clear()
        server.close()
        running.cancel()

    asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))


def test_all_ports_of_a_large_cluster_are_tried() -> None:
    endpoints = tuple(f"tcp://127.0.0.1:{port}" for port in range(2, 202))

    async def follow() -> None:
        changed = asyncio.Event()
        own = Reaching(own_endpoint="tcp://127.0.0.1:1", on_change=changed.set)
        own.want(endpoints)
        running = asyncio.create_task(own.run())
        await changed.wait()
        assert own.state.tried == digest_of(endpoints)
        assert own.state.failing.keys() == set(endpoints), "no process of ours has these"
        running.cancel()

    asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))


@asynccontextmanager
async def idle_port(is_idle: Callable[[], bool] = lambda: True) -> AsyncIterator[str]:
    port = free_port()
    listener = LinkListener(host="127.0.0.1", port=port, may_measure=is_idle)
    listener.key = KEY
    await listener.open()
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        listener.close()
    socket.create_server(("127.0.0.1", port)).close()  # free for a stage


def test_links_to_idle_ports_are_measured_both_ways_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        link_measuring, "ORDER", replace(link_measuring.ORDER, most_bytes=10**7, most_s=0.05)
    )
    monkeypatch.setattr(reaching, "BUSY_AGAIN_S", 0.01)

    async def follow() -> None:
        changed = asyncio.Event()
        own = Reaching(
            own_endpoint="tcp://127.0.0.1:1", on_change=changed.set, may_measure=lambda: True
        )
        async with idle_port() as first, idle_port() as second:
            running = asyncio.create_task(own.run())
            own.want(None, LinksToMeasure(key=KEY, endpoints=(first, second)))
            while len(own.state.measured) < 2:
                await changed.wait()
                changed.clear()
            link = own.state.measured[first]
            assert min(link.sent.bytes_per_s, link.received.bytes_per_s) > 1e6
            assert 0 < link.rtt_s < 1
            own.want(None, LinksToMeasure(key=KEY, endpoints=(second,)))
            assert own.state.measured.keys() == {second}, "the site has the other's numbers"
            running.cancel()

    asyncio.run(asyncio.wait_for(follow(), PATIENCE_S))


@asynccontextmanager
async def far_away(endpoint: str, *, delay_s: float) -> AsyncIterator[str]:
    """Another endpoint that leads there, with a delay each way."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def arrive() -> None:
            while True:
                due_s, data = await on_the_way.get()
                await asyncio.sleep(due_s - time.monotonic())
                writer.write(data)

        tasks.add(asyncio.create_task(arrive()))
        while data := await reader.read(1 << 16):
            on_the_way.put_nowait((time.monotonic() + delay_s, data))

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", int(endpoint.split(":")[-1]))
        writers.extend((writer, there[1]))
        tasks.add(asyncio.create_task(carry(reader, there[1])))
        tasks.add(asyncio.create_task(carry(there[0], writer)))

    port = free_port()
    async with await asyncio.start_server(relay, "127.0.0.1", port):
        yield f"tcp://127.0.0.1:{port}"
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_link_with_a_long_round_trip_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its probes are answered after the last chunk was."""
    monkeypatch.setattr(
        link_measuring, "ORDER", replace(link_measuring.ORDER, most_bytes=10**7, most_s=0.35)
    )
    monkeypatch.setattr(send_stream, "PROBE_INTERVAL_S", 0.005)

    async def measure() -> None:
        async with idle_port() as near, far_away(near, delay_s=0.05) as endpoint:
            link = await measure_link(endpoint, key=KEY)
            assert link.rtt_s >= 0.1

    asyncio.run(asyncio.wait_for(measure(), PATIENCE_S))


def test_a_result_without_an_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        link_measuring, "ORDER", replace(link_measuring.ORDER, most_bytes=10**6, most_s=0.02)
    )

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(link_measuring._CHALLENGE_BYTES))
        await reader.readexactly(len(link_measuring.MAGIC) + link_measuring._PROOF_BYTES)
        writer.write(b"G")
        await link_measuring._receive(reader, writer, lambda: True)
        with suppress(ConnectionError):
            await link_measuring._write(writer)  # the end of its own chunks
            writer.write(b"1" * (2 << 20))
            await writer.drain()
        writer.close()

    async def measure() -> None:
        port = free_port()
        async with await asyncio.start_server(flood, "127.0.0.1", port):
            with pytest.raises(CannotMeasure):
                await measure_link(f"tcp://127.0.0.1:{port}", key=KEY)

    asyncio.run(asyncio.wait_for(measure(), PATIENCE_S))


def test_nothing_is_measured_while_serving_twice_at_once_or_for_strangers() -> None:
    async def why_not(endpoint: str, key: str = KEY) -> str:
        with pytest.raises(CannotMeasure) as refused:
            await measure_link(endpoint, key=key)
        return str(refused.value)

    async def ask() -> None:
        async with idle_port(is_idle=lambda: False) as serving, idle_port() as idle:
            assert await why_not(serving) == f"{serving} is busy"
            assert "takes part in no" in await why_not(idle, key="x" * 32)
            with machine_turn() as is_ours:
                assert is_ours
                assert "another measurement" in await why_not(idle)
            reader, writer = await asyncio.open_connection("127.0.0.1", int(idle.split(":")[-1]))
            writer.write(b"\xff" + bytes(9))  # how ZeroMQ begins: a stage that looks for another
            assert await reader.read() == b"", "nobody of that kind is here"
            writer.close()

    asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


def test_the_remedy_names_host_and_port() -> None:
    assert cannot_reach("a", "b", "tcp://10.0.0.2:7001") == (
        "a cannot reach b at 10.0.0.2:7001: allow this TCP port through the firewall; if b is "
        "behind NAT, forward a port to it and restart it with --advertise"
    )
    assert "restart b with --data-host" in cannot_reach("a", "b", "tcp://[::1]:7001")
