"""Decodes over a real connection that swallows them and breaks: each arrives, once, in order."""

import time
from collections.abc import Iterator

import pytest

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Flag, FrameError, Kind, Message
from runtime.transport.base import Received
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport
from tests.runtime.tcp_relay import Relay

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 90.0
ADA, BOB = KeyPair.generate(), KeyPair.generate()


def rows(request: int, *, flags: Flag = Flag.NONE) -> Message:
    entry = Entry(request=request, epoch=0, position=0, n_tokens=1, hop=1, flags=flags)
    return Message(
        kind=Kind.ROWS, generation=3, entries=(entry,), dtype=DType.FLOAT32, payload=bytes(80_000)
    )


def take(transport: ZmqTransport, count: int) -> list[int]:
    received: list[Received] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(received) < count and time.monotonic() < deadline_s:
        received += transport.receive(timeout_s=0.2)
    return [one.message.entries[0].request for one in received]


@pytest.fixture
def bob() -> Iterator[ZmqTransport]:
    transport = ZmqTransport(name="bob", bind=LOOPBACK, keys=BOB)
    yield transport
    transport.close()


@pytest.fixture
def relay(bob: ZmqTransport) -> Iterator[Relay]:
    laid = Relay(int(bob.endpoint.rpartition(":")[2]))
    yield laid
    laid.close()


@pytest.fixture
def ada(bob: ZmqTransport, relay: Relay) -> Iterator[ZmqTransport]:
    there = PeerAddress(
        name="bob", endpoint=f"tcp://127.0.0.1:{relay.port}", public_key=BOB.public_key
    )
    transport = ZmqTransport(name="ada", bind=LOOPBACK, keys=ADA, peers=[there])
    bob.set_peers([PeerAddress(name="ada", endpoint=transport.endpoint, public_key=ADA.public_key)])
    yield transport
    transport.close()


@pytest.mark.parametrize("flags", [Flag.NONE, Flag.PREFILL])
def test_what_no_peer_would_take_is_refused_where_it_is_sent_and_the_next_arrives(
    ada: ZmqTransport, bob: ZmqTransport, flags: Flag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.transport.lanes.MAX_PAYLOAD_BYTES", 79_999)
    with pytest.raises(FrameError, match="a ROWS of 80000 bytes for 'bob'; at most 79999"):
        ada.send("bob", rows(0, flags=flags))
    monkeypatch.undo()
    ada.send("bob", rows(1, flags=flags))
    assert take(bob, 1) == [1]


@pytest.mark.parametrize("more_follow", [True, False])
def test_what_a_connection_swallowed_before_it_broke_goes_again(
    ada: ZmqTransport, bob: ZmqTransport, relay: Relay, more_follow: bool
) -> None:
    ada.send("bob", rows(0))
    assert take(bob, 1) == [0]
    relay.swallow()
    for number in range(1, 6):
        ada.send("bob", rows(number))
    deadline_s = time.monotonic() + PATIENCE_S
    while relay.swallowed_bytes < 5 * 80_000:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    relay.break_all()
    sent = 6
    if more_follow:  # and else nobody but the lane itself asks for what is missing
        ada.send("bob", rows(6))
        sent = 7
    assert take(bob, sent - 1) == list(range(1, sent))
    assert bob.receive(timeout_s=0) == []
    assert ada.link_stats()["bob"].sent_again_total >= 5
