"""What a peer may do wrong on its connection: no crash, no unbounded queue, and it is named."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import zmq
from free_port import free_port

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Flag, Kind, Message, encode
from runtime.protocol.link_frames import (
    Ack,
    Chunk,
    Probe,
    Urgent,
    UrgentProbe,
    decode_link_frame,
    encode_link_frame,
)
from runtime.transport.base import PeerStalled, Received
from runtime.transport.link_scheduler import LinkOptions
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 90.0
ADA, BOB = KeyPair.generate(), KeyPair.generate()


def rows(request: int, size: int = 4, flags: Flag = Flag.NONE) -> Message:
    entry = Entry(request=request, epoch=0, position=0, n_tokens=1, hop=1, flags=flags)
    return Message(
        kind=Kind.ROWS, generation=3, entries=(entry,), dtype=DType.FLOAT32, payload=bytes(size)
    )


def address(name: str, endpoint: str, keys: KeyPair) -> PeerAddress:
    return PeerAddress(name=name, endpoint=endpoint, public_key=keys.public_key)


def until(holds: Callable[[], bool]) -> bool:
    """Whether it holds before patience ends."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def take(transport: ZmqTransport, count: int) -> list[int]:
    """The requests of the next `count` messages."""
    received: list[Received] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(received) < count and time.monotonic() < deadline_s:
        received += transport.receive(timeout_s=0.2)
    return [one.message.entries[0].request for one in received]


@pytest.fixture
def bob() -> Iterator[ZmqTransport]:
    """Listens to ada, who cannot be dialled."""
    transport = ZmqTransport(
        name="bob", bind=LOOPBACK, keys=BOB, peers=[address("ada", "tcp://127.0.0.1:9", ADA)]
    )
    yield transport
    transport.close()


@pytest.fixture
def connect(bob: ZmqTransport) -> Iterator[Callable[[], Any]]:
    """Makes a connection of ada's to bob on which anything may be said."""
    with ExitStack() as closing:
        context = closing.enter_context(zmq.Context())

        def connect_one() -> Any:
            socket = closing.enter_context(context.socket(zmq.DEALER))
            socket.linger = 0
            socket.curve_publickey = ADA.public_key.encode()
            socket.curve_secretkey = ADA.secret_key.encode()
            socket.curve_serverkey = BOB.public_key.encode()
            socket.connect(bob.endpoint)
            return socket

        yield connect_one


@pytest.fixture
def dealer(connect: Callable[[], Any]) -> Any:
    return connect()


def chunks(message: Message, *, stream: int, size: int) -> list[list[bytes]]:
    """The frames of a message on the bulk lane."""
    head, payload = encode(message)
    whole = bytes(payload)
    return [
        [
            encode_link_frame(
                Chunk(
                    stream=stream,
                    sequence=sequence,
                    offset=offset,
                    payload_bytes=len(whole),
                    sent_us=sequence,
                )
            ),
            bytes(head) if offset == 0 else b"",
            whole[offset : offset + size],
        ]
        for sequence, offset in enumerate(range(0, len(whole), size))
    ]


def test_a_peer_of_another_protocol_version_is_named_and_does_no_harm(
    bob: ZmqTransport, dealer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    head, payload = encode(rows(9))
    dealer.send_multipart([b"HLX1" + bytes(head)[4:], payload])
    dealer.send_multipart([b"HLL2" + encode_link_frame(Probe(stream=1, sequence=0, sent_us=0))[4:]])
    dealer.send_multipart([head, payload])
    assert take(bob, 1) == [9]
    assert bob.dropped_messages == 2
    (said,) = [record.message for record in caplog.records if "dropped" in record.message]
    assert "peer ada" in said
    assert "b'HLX1', not b'HLX2'; both ends must be of one release" in said


def test_noise_through_the_socket_is_dropped_and_what_follows_arrives(
    bob: ZmqTransport, dealer: Any
) -> None:
    noise = random.Random(4)
    early = Urgent(stream=1, sequence=2**63, sent_us=0, asks=False)
    dealer.send_multipart([encode_link_frame(early), b"head", bytes(100)])
    huge = Chunk(stream=1, sequence=0, offset=0, payload_bytes=2**63, sent_us=0)
    dealer.send_multipart([encode_link_frame(huge), b"head", bytes(100)])
    begins = [
        b"",
        b"HLX2",
        b"HLL1",
        b"HLL1\1\0\0\0",
        b"HLL1\2\0\0\0",
        b"HLL1\3\0\0\0",
        b"HLL1\4\0\0\0",
    ]
    for _ in range(500):
        frames = [
            noise.choice(begins) + noise.randbytes(noise.randrange(60))
            for _ in range(noise.randrange(1, 5))
        ]
        dealer.send_multipart(frames)
    dealer.send_multipart([*encode(rows(9))])
    for frames in chunks(rows(10, size=3000, flags=Flag.PREFILL), stream=77, size=1000):
        dealer.send_multipart(frames)
    assert take(bob, 2) == [9, 10]
    assert bob.dropped_messages > 400


def test_chunks_that_are_repeated_or_come_early_make_one_message_and_acks_say_what_is_missing(
    bob: ZmqTransport, dealer: Any
) -> None:
    first, second, third = chunks(rows(5, size=300, flags=Flag.PREFILL), stream=7, size=100)
    for frames in (first, first, third, second, second, third, first):
        dealer.send_multipart(frames)
    assert take(bob, 1) == [5]
    expected = []
    for _ in range(7):
        assert dealer.poll(PATIENCE_S * 1000)
        ack = decode_link_frame(dealer.recv())
        assert isinstance(ack, Ack)
        expected.append(ack.expected)
    assert expected == [1, 1, 1, 2, 2, 3, 3]
    assert bob.receive(timeout_s=0.1) == []


def test_half_a_message_of_a_peer_that_left_is_not_kept(bob: ZmqTransport, dealer: Any) -> None:
    first, second = chunks(rows(5, size=200, flags=Flag.PREFILL), stream=7, size=100)
    dealer.send_multipart(first)
    assert answer(dealer).expected == 1
    bob.set_peers([address("ada", "tcp://127.0.0.1:8", ADA)])  # it moved: more of it may come
    dealer.send_multipart(second)
    assert take(bob, 1) == [5]
    bob.set_peers([])
    assert until(lambda: bob._lanes._streams["ada"].expected(7) == 0)


def urgent(number: int, *, asks: bool = False) -> list[bytes]:
    """The frames of that message on the urgent lane."""
    header = Urgent(stream=7, sequence=number, sent_us=number, asks=asks)
    return [encode_link_frame(header), *(bytes(frame) for frame in encode(rows(number)))]


def answer(socket: Any) -> Ack:
    assert socket.poll(PATIENCE_S * 1000)
    ack = decode_link_frame(socket.recv())
    assert isinstance(ack, Ack)
    return ack


def test_what_an_old_connection_delivers_late_is_taken_in_its_turn_and_once(
    bob: ZmqTransport, connect: Callable[[], Any]
) -> None:
    old, new = connect(), connect()
    old.send_multipart(urgent(0))
    assert take(bob, 1) == [0]
    new.send_multipart(urgent(2))  # the old one has not delivered what it was given before
    assert (answer(new).expected, bob.receive(timeout_s=0)) == (1, [])
    old.send_multipart(urgent(1, asks=True))
    assert (answer(old).expected, take(bob, 1)) == (2, [1])
    for number in (1, 2, 3):  # again, since the first was missing
        new.send_multipart(urgent(number, asks=number == 3))
    assert take(bob, 2) == [2, 3]
    assert [answer(new).expected for _ in range(2)] == [2, 4]
    old.send_multipart(urgent(2))
    assert answer(old).expected == 4
    new.send_multipart([encode_link_frame(UrgentProbe(stream=7, sequence=4, sent_us=0))])
    assert answer(new).expected == 4
    assert bob.receive(timeout_s=0) == []
    assert not new.poll(0)  # and nothing else was answered


def send_all(sender: ZmqTransport, messages: list[Message]) -> None:
    """Take out what was sent."""
    while messages:
        sender.send("bob", messages[0])
        del messages[0]


def test_a_reader_that_stalls_is_named_bounds_what_waits_and_gets_all_once_it_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as silent:
        silent.linger = 0
        silent.curve_server = True
        silent.curve_secretkey = BOB.secret_key.encode()
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        silent.bind(endpoint)
        options = LinkOptions(most_waiting_bytes=1_000_000)
        ada = ZmqTransport(
            name="ada",
            bind=LOOPBACK,
            keys=ADA,
            peers=[address("bob", endpoint, BOB)],
            options=options,
        )
        prompts = [rows(number, size=100_000, flags=Flag.PREFILL) for number in range(100)]
        with pytest.raises(PeerStalled, match="'bob'"):
            send_all(ada, prompts)
        sent = 100 - len(prompts)
        assert until(lambda: ada.link_stats()["bob"].stalled)
        stats = ada.link_stats()["bob"]
        assert stats.waiting_bytes <= options.most_waiting_bytes
        assert stats.in_flight_bytes <= options.first_window_bytes + options.least_chunk_bytes
        assert until(
            lambda: any(
                "the link to bob takes no prompts" in record.message for record in caplog.records
            )
        )
    reader = ZmqTransport(
        name="bob", bind=endpoint, keys=BOB, peers=[address("ada", ada.endpoint, ADA)]
    )
    assert take(reader, sent) == list(range(sent))
    assert until(lambda: not ada.link_stats()["bob"].stalled)
    ada.close()
    reader.close()


def test_what_a_process_does_not_take_is_bounded_and_makes_its_peers_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 400_000
    monkeypatch.setattr("runtime.transport.lanes.MAX_INBOX_BYTES", most)
    slow = ZmqTransport(name="bob", bind=LOOPBACK, keys=BOB)
    ada = ZmqTransport(
        name="ada", bind=LOOPBACK, keys=ADA, peers=[address("bob", slow.endpoint, BOB)]
    )
    slow.set_peers([address("ada", ada.endpoint, ADA)])
    for request in range(60):
        ada.send("bob", rows(request, size=100_000, flags=Flag.PREFILL))
    assert until(lambda: ada.link_stats()["bob"].stalled)
    assert ada.link_stats()["bob"].waiting_bytes > 0
    assert take(slow, 60) == list(range(60))
    ada.close()
    slow.close()
