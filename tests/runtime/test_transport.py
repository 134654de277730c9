"""Both transports do the same, and ZeroMQ lets in and names only peers whose key is listed."""

import asyncio
import contextlib
import gc
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from free_port import free_port
from in_memory_network import InMemoryNetwork

from runtime.membership.data_address import choose_port, data_endpoint
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Kind, Message, StageStatus, encode
from runtime.protocol.data_security import DataSecurity
from runtime.transport.base import PeerStalled, Received, Transport, UnknownPeer
from runtime.transport.zmq_sockets import KeyFileError, KeyPair, sending_socket
from runtime.transport.zmq_transport import AsyncZmqTransport, BindFailed, ZmqTransport

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 90.0
NAMES = ("ada", "bob")

Pair = tuple[Transport, Transport]


def rows(request: int, payload: bytes = b"\x00\x00\x80\x3f") -> Message:
    entry = Entry(request=request, epoch=0, position=0, n_tokens=1, hop=1)
    return Message(
        kind=Kind.ROWS, generation=3, entries=(entry,), dtype=DType.FLOAT32, payload=payload
    )


def take(transport: Transport, count: int) -> list[Received]:
    """Wait until `count` messages came."""
    deadline_s = time.monotonic() + PATIENCE_S
    received: list[Received] = []
    while len(received) < count and time.monotonic() < deadline_s:
        received += transport.receive(timeout_s=0.2)
    assert len(received) == count
    return received


def take_some(transport: Transport) -> list[Received]:
    """Wait until any came."""
    received = transport.receive(timeout_s=PATIENCE_S)
    assert received
    return received


def address(name: str, transport: ZmqTransport | AsyncZmqTransport, keys: KeyPair) -> PeerAddress:
    return PeerAddress(name=name, endpoint=transport.endpoint, public_key=keys.public_key)


@pytest.fixture
def keys() -> dict[str, KeyPair]:
    return {name: KeyPair.generate() for name in (*NAMES, "eve")}


@pytest.fixture
def opened() -> Iterator[Callable[[ZmqTransport], ZmqTransport]]:
    transports: list[ZmqTransport] = []

    def remember(transport: ZmqTransport) -> ZmqTransport:
        transports.append(transport)
        return transport

    yield remember
    for transport in transports:
        transport.close()


@pytest.fixture
def zmq_pair(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> tuple[ZmqTransport, ZmqTransport]:
    ada, bob = (opened(ZmqTransport(name=name, bind=LOOPBACK, keys=keys[name])) for name in NAMES)
    peers = (address("ada", ada, keys["ada"]), address("bob", bob, keys["bob"]))
    ada.set_peers(peers)
    bob.set_peers(peers)
    return ada, bob


@pytest.fixture(params=["zmq", "in_memory"])
def pair(request: pytest.FixtureRequest) -> Pair:
    if request.param == "zmq":
        return request.getfixturevalue("zmq_pair")  # type: ignore[no-any-return]
    network = InMemoryNetwork()
    return network.join("ada"), network.join("bob")


def test_messages_arrive_in_order_and_carry_their_senders_name(pair: Pair) -> None:
    ada, bob = pair
    for request in range(200):
        ada.send("bob", rows(request))
    received = take(bob, 200)
    assert [one.message.entries[0].request for one in received] == list(range(200))
    assert {one.sender for one in received} == {"ada"}
    bob.send("ada", rows(7))
    assert take(ada, 1) == [Received(sender="bob", message=rows(7))]


def test_a_large_payload_arrives_whole_as_a_view_that_outlives_its_sender(pair: Pair) -> None:
    ada, bob = pair
    content = bytes(range(256)) * 16384
    ada.send("bob", rows(1, memoryview(bytearray(content))))  # type: ignore[arg-type]
    (received,) = take(bob, 1)
    ada.close()
    bob.close()
    gc.collect()
    assert isinstance(received.message.payload, memoryview)
    assert received.message.payload == content


def test_a_message_without_payload_arrives(pair: Pair) -> None:
    ada, bob = pair
    status = StageStatus(incarnation=5, first=0, end=4, page_tokens=16, pages_total=9, pages_used=2)
    ada.send("bob", Message(kind=Kind.STATUS, generation=1, status=status))
    assert take(bob, 1)[0].message.status == status


def test_what_is_sent_to_oneself_comes_back(pair: Pair) -> None:
    ada, _ = pair
    ada.send("ada", rows(5))
    assert take(ada, 1) == [Received(sender="ada", message=rows(5))]
    assert ada.receive(timeout_s=0) == []


def test_peers_reach_each_other_at_addresses_of_ipv6(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    there = data_endpoint("::1", choose_port("::1", wanted=0, kept=None))
    bob = opened(ZmqTransport(name="bob", bind=there, keys=keys["bob"]))
    assert bob.endpoint == there
    ada = opened(ZmqTransport(name="ada", bind=LOOPBACK, keys=keys["ada"]))
    ada.set_peers([address("bob", bob, keys["bob"])])
    bob.set_peers([address("ada", ada, keys["ada"])])
    ada.send("bob", rows(1))
    bob.send("ada", rows(2))
    assert [one.message for one in take(bob, 1) + take(ada, 1)] == [rows(1), rows(2)]


@pytest.mark.skipif(sys.platform != "linux", reason="others refuse what a full queue cannot take")
def test_a_connection_that_a_firewall_leaves_unanswered_is_begun_again(
    keys: dict[str, KeyPair],
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        place = silent.getsockname()
        queued = [socket.socket() for _ in range(4)]  # the kernel drops what does not fit
        for one in queued:
            one.setblocking(False)
            one.connect_ex(place)
        there = PeerAddress(
            name="bob", endpoint=f"tcp://127.0.0.1:{place[1]}", public_key=keys["bob"].public_key
        )
        dealer = sending_socket(
            context, there, keys=keys["ada"], security=DataSecurity.CURVE, most_waiting=9
        )
        monitor = dealer.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
        dealer.connect(there.endpoint)
        for _ in range(2):
            assert monitor.poll(PATIENCE_S * 1000), "the first attempt is still waited for"
            monitor.recv_multipart()
        for one in queued:
            one.close()
    context.destroy(linger=0)


def test_sending_to_a_stranger_names_it(pair: Pair) -> None:
    with pytest.raises(UnknownPeer, match="mallory"):
        pair[0].send("mallory", rows(1))


def test_receive_returns_with_nothing_when_nothing_comes(pair: Pair) -> None:
    assert pair[0].receive(timeout_s=0.01) == []
    assert pair[0].receive(timeout_s=0) == []


def test_close_may_be_called_twice(pair: Pair) -> None:
    for transport in pair:
        transport.close()
        transport.close()


def test_the_in_memory_network_may_be_used_from_several_threads() -> None:
    network = InMemoryNetwork()
    sink = network.join("sink")
    senders = [network.join(f"s{index}") for index in range(4)]
    threads = [
        threading.Thread(target=lambda s=sender: [s.send("sink", rows(n)) for n in range(100)])
        for sender in senders
    ]
    for thread in threads:
        thread.start()
    received = take(sink, 400)
    for thread in threads:
        thread.join()
    for index in range(4):
        mine = [one for one in received if one.sender == f"s{index}"]
        assert [one.message.entries[0].request for one in mine] == list(range(100))


def test_a_key_that_is_not_listed_gets_nothing_through_until_it_is_listed(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    bob = opened(ZmqTransport(name="bob", bind=LOOPBACK, keys=keys["bob"]))
    bob_address = address("bob", bob, keys["bob"])
    eve = opened(ZmqTransport(name="ada", bind=LOOPBACK, keys=keys["eve"], peers=(bob_address,)))
    ada = opened(ZmqTransport(name="ada", bind=LOOPBACK, keys=keys["ada"], peers=(bob_address,)))
    bob.set_peers([address("ada", ada, keys["ada"])])
    eve.send("bob", rows(666))
    ada.send("bob", rows(1))
    assert [one.message.entries[0].request for one in take(bob, 1)] == [1]
    assert bob.receive(timeout_s=0.3) == []
    # The refused connection is retried, so a peer that is enrolled later gets through.
    bob.set_peers([address("eve", eve, keys["eve"])])
    (late,) = take(bob, 1)
    assert late == Received(sender="eve", message=rows(666))


def test_a_peer_that_was_removed_is_not_heard_any_more(
    zmq_pair: tuple[ZmqTransport, ZmqTransport],
) -> None:
    ada, bob = zmq_pair
    ada.send("bob", rows(1))
    take(bob, 1)
    bob.set_peers([])
    ada.send("bob", rows(2))
    deadline_s = time.monotonic() + PATIENCE_S
    while bob.dropped_messages == 0 and time.monotonic() < deadline_s:
        assert bob.receive(timeout_s=0.1) == []
    assert bob.dropped_messages > 0  # the message, and whatever asks what became of it
    with pytest.raises(UnknownPeer):
        bob.send("ada", rows(3))


def test_a_sender_is_named_by_its_key_and_never_by_what_it_calls_itself(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    bob = opened(ZmqTransport(name="bob", bind=LOOPBACK, keys=keys["bob"]))
    liar = opened(
        ZmqTransport(
            name="ada",
            bind=LOOPBACK,
            keys=keys["eve"],
            peers=(address("bob", bob, keys["bob"]),),
        )
    )
    bob.set_peers([address("eve", liar, keys["eve"])])
    liar.send("bob", rows(1))
    assert take(bob, 1)[0].sender == "eve"


def test_a_client_that_dials_the_wrong_server_key_says_nothing_to_it(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    bob = opened(ZmqTransport(name="bob", bind=LOOPBACK, keys=keys["bob"]))
    ada = opened(
        ZmqTransport(
            name="ada",
            bind=LOOPBACK,
            keys=keys["ada"],
            peers=(
                PeerAddress(name="bob", endpoint=bob.endpoint, public_key=keys["eve"].public_key),
            ),
        )
    )
    bob.set_peers([address("ada", ada, keys["ada"])])
    ada.send("bob", rows(1))
    assert bob.receive(timeout_s=0.4) == []


def test_malformed_frames_are_dropped_counted_and_logged_once_a_peer(
    zmq_pair: tuple[ZmqTransport, ZmqTransport],
    keys: dict[str, KeyPair],
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, bob = zmq_pair
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.curve_publickey = keys["ada"].public_key.encode()
        dealer.curve_secretkey = keys["ada"].secret_key.encode()
        dealer.curve_serverkey = keys["bob"].public_key.encode()
        dealer.connect(bob.endpoint)
        head, payload = encode(rows(9))
        dealer.send_multipart([b"garbage", b""])
        dealer.send_multipart([head])
        dealer.send_multipart([head, payload, b"more"])
        dealer.send_multipart([head, b"short"])
        dealer.send_multipart([head, payload])
        assert take(bob, 1) == [Received(sender="ada", message=rows(9))]
    assert bob.dropped_messages == 4
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1


def test_plain_text_connections_are_refused(zmq_pair: tuple[ZmqTransport, ZmqTransport]) -> None:
    _, bob = zmq_pair
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(bob.endpoint)
        with contextlib.suppress(zmq.Again):  # refused already, it would wait for another peer
            dealer.send_multipart([*encode(rows(9))], zmq.NOBLOCK)
        assert bob.receive(timeout_s=0.4) == []


def test_a_message_waits_for_a_peer_that_starts_later_and_a_restart_is_dialled_again(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    bob_address = PeerAddress(name="bob", endpoint=endpoint, public_key=keys["bob"].public_key)
    ada = opened(ZmqTransport(name="ada", bind=LOOPBACK, keys=keys["ada"], peers=(bob_address,)))
    ada.send("bob", rows(1))
    for request in (1, 2):
        bob = opened(
            ZmqTransport(
                name="bob",
                bind=endpoint,
                keys=keys["bob"],
                peers=(address("ada", ada, keys["ada"]),),
            )
        )
        came: list[int] = []
        while request not in came:  # the first comes again where its answer was lost at the end
            came += [one.message.entries[0].request for one in take_some(bob)]
        assert came in ([request], [1, request])
        bob.close()
        ada.send("bob", rows(2))


def test_what_waits_for_a_peer_that_never_comes_is_bounded(
    keys: dict[str, KeyPair],
    opened: Callable[[ZmqTransport], ZmqTransport],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.transport.zmq_transport.MAX_WAITING_MESSAGES", 50)
    never = PeerAddress(name="bob", endpoint="tcp://127.0.0.1:9", public_key=keys["bob"].public_key)
    ada = opened(ZmqTransport(name="ada", bind=LOOPBACK, keys=keys["ada"], peers=(never,)))
    for request in range(50):
        ada.send("bob", rows(request))
    for _ in range(3):
        with pytest.raises(PeerStalled, match="'bob'"):
            ada.send("bob", rows(50))


def test_an_address_in_use_is_named(keys: dict[str, KeyPair]) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        with pytest.raises(BindFailed, match=f"127.0.0.1:{port}"):
            ZmqTransport(name="bob", bind=f"tcp://127.0.0.1:{port}", keys=keys["bob"])


def test_an_awaited_receive_loses_nothing_under_load_and_sees_what_it_sent_itself(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    async def exchange() -> None:
        bob = AsyncZmqTransport(name="bob", bind=LOOPBACK, keys=keys["bob"])
        ada = opened(
            ZmqTransport(
                name="ada",
                bind=LOOPBACK,
                keys=keys["ada"],
                peers=(address("bob", bob, keys["bob"]),),
            )
        )
        bob.set_peers([address("ada", ada, keys["ada"])])

        def chatter() -> None:
            for request in range(2000):
                ada.send("bob", rows(request))
                if request % 100 == 0:
                    time.sleep(0.001)

        sending = asyncio.create_task(asyncio.to_thread(chatter))
        requests: list[int] = []
        while len(requests) < 2000:
            received = await asyncio.wait_for(bob.receive(), PATIENCE_S)
            requests += [one.message.entries[0].request for one in received]
        await sending
        assert requests == list(range(2000))

        waiting = asyncio.create_task(bob.receive())
        await asyncio.sleep(0)
        bob.send("bob", rows(5))
        assert (await asyncio.wait_for(waiting, PATIENCE_S))[0].sender == "bob"

        cancelled = asyncio.create_task(bob.receive())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        ada.send("bob", rows(6))
        assert len(await asyncio.wait_for(bob.receive(), PATIENCE_S)) == 1
        bob.close()

    asyncio.run(exchange())


def test_a_key_pair_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "curve.key"
    created = KeyPair.load_or_create(path)
    assert KeyPair.load_or_create(path) == created
    assert KeyPair.load(path) == created
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert created.secret_key not in repr(created)


def test_a_damaged_key_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "curve.key"
    for content in ("", "short", "~" * 40, "ü" * 40):
        path.write_text(content)
        with pytest.raises(KeyFileError, match=r"curve\.key.*delete it"):
            KeyPair.load_or_create(path)


def test_a_receive_ends_early_only_with_something(
    keys: dict[str, KeyPair], opened: Callable[[ZmqTransport], ZmqTransport]
) -> None:
    """Whoever delivers may be held up between putting a message there and saying so."""
    ada = opened(ZmqTransport(name="ada", bind=LOOPBACK, keys=keys["ada"], peers=()))
    count, switch_s = 3000, sys.getswitchinterval()

    def send_all() -> None:
        for number in range(count):
            ada.send("ada", rows(number))

    sending = threading.Thread(target=send_all)
    sys.setswitchinterval(1e-6)
    try:
        sending.start()
        heard = 0
        while heard < count:
            received = ada.receive(timeout_s=PATIENCE_S)
            assert received
            heard += len(received)
    finally:
        sys.setswitchinterval(switch_s)
        sending.join()
