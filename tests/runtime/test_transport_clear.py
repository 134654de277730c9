"""Data frames in clear, for trusted networks: the same messages, peers known by name still."""

import contextlib
import time
from collections.abc import Iterator

import pytest
import zmq

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Flag, Kind, Message, encode
from runtime.protocol.data_security import DataSecurity
from runtime.transport.base import Received
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

PATIENCE_S = 90.0
KEYS = {name: KeyPair.generate() for name in ("ada", "bob", "eve")}


def rows(request: int, size: int = 4, flags: Flag = Flag.NONE) -> Message:
    entry = Entry(request=request, epoch=0, position=0, n_tokens=1, hop=1, flags=flags)
    return Message(
        kind=Kind.ROWS, generation=3, entries=(entry,), dtype=DType.FLOAT32, payload=bytes(size)
    )


def take(transport: ZmqTransport, count: int) -> list[Received]:
    deadline_s = time.monotonic() + PATIENCE_S
    received: list[Received] = []
    while len(received) < count and time.monotonic() < deadline_s:
        received += transport.receive(timeout_s=0.2)
    return received


def transport(name: str, security: DataSecurity, *, calls_itself: str = "") -> ZmqTransport:
    return ZmqTransport(
        name=calls_itself or name, bind="tcp://127.0.0.1:0", keys=KEYS[name], security=security
    )


def address(name: str, of: ZmqTransport) -> PeerAddress:
    return PeerAddress(name=name, endpoint=of.endpoint, public_key=KEYS[name].public_key)


@pytest.fixture
def bob() -> Iterator[ZmqTransport]:
    one = transport("bob", DataSecurity.CLEAR)
    yield one
    one.close()


def test_messages_pass_in_clear_on_both_lanes_and_carry_their_senders_name(
    bob: ZmqTransport,
) -> None:
    ada = transport("ada", DataSecurity.CLEAR)
    for one in (ada, bob):
        one.set_peers([address("ada", ada), address("bob", bob)])
    ada.send("bob", rows(1))
    ada.send("bob", rows(2, size=100_000, flags=Flag.PREFILL))
    received = take(bob, 2)
    assert {one.message.entries[0].request for one in received} == {1, 2}
    assert {one.sender for one in received} == {"ada"}
    ada.close()


def test_a_key_that_is_not_listed_gets_nothing_through_in_clear_either(bob: ZmqTransport) -> None:
    ada = transport("ada", DataSecurity.CLEAR)
    eve = transport("eve", DataSecurity.CLEAR, calls_itself="ada")
    eve.set_peers([address("bob", bob)])
    ada.set_peers([address("bob", bob)])
    bob.set_peers([address("ada", ada)])
    eve.send("bob", rows(666))
    ada.send("bob", rows(1))
    assert [one.message.entries[0].request for one in take(bob, 1)] == [1]
    assert bob.receive(timeout_s=0.3) == []
    eve.close()
    ada.close()


@pytest.mark.parametrize("bobs", list(DataSecurity))
def test_ends_that_disagree_exchange_nothing(bobs: DataSecurity) -> None:
    other = next(one for one in DataSecurity if one is not bobs)
    listening, ada = transport("bob", bobs), transport("ada", other)
    for one in (ada, listening):
        one.set_peers([address("ada", ada), address("bob", listening)])
    ada.send("bob", rows(1))
    assert listening.receive(timeout_s=0.5) == []
    listening.close()
    ada.close()


def test_a_connection_that_names_no_key_is_refused_in_clear(bob: ZmqTransport) -> None:
    ada = transport("ada", DataSecurity.CLEAR)
    bob.set_peers([address("ada", ada)])
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(bob.endpoint)
        with contextlib.suppress(zmq.Again):  # refused already, it would wait for another peer
            dealer.send_multipart([*encode(rows(9))], zmq.NOBLOCK)
        assert bob.receive(timeout_s=0.4) == []
    ada.close()
