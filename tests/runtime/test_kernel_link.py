"""TCP says what a connection of ZeroMQ's delivers and paces it, and lets go of one that broke."""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import zmq

from runtime.transport.kernel_link import KernelLink, look_at, set_pace
from tests.runtime.tcp_relay import Relay
from tests.waiting import until

_SO_MAX_PACING_RATE = 47
_PATIENCE_MS = 90_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels say nothing of TCP")


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def relay(context: zmq.Context[Any]) -> Iterator[Relay]:
    router = context.socket(zmq.ROUTER)
    router.bind("tcp://127.0.0.1:0")
    laid = Relay(int(router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]))
    yield laid
    laid.close()
    router.close(linger=0)


def follow_until(link: KernelLink, holds: Callable[[], bool]) -> None:
    while not holds():
        assert link.monitor.poll(_PATIENCE_MS), "nothing became of the connection"
        link.follow()


def test_a_connection_is_looked_at_and_paced_until_it_breaks_and_again_after(
    context: zmq.Context[Any], relay: Relay
) -> None:
    dealer = context.socket(zmq.DEALER)
    link = KernelLink(dealer, port=relay.port)
    assert link.look() is None
    link.pace(1e6)  # of no connection: nothing to do
    dealer.connect(f"tcp://127.0.0.1:{relay.port}")
    follow_until(link, lambda: link.look() is not None)
    found = link.look()
    assert found is not None
    assert found.packet_bytes > 0
    assert found.rtt_s > 0
    until(lambda: relay.answered_bytes, "the relay knows both ends")
    relay.break_all()
    assert link.monitor.poll(_PATIENCE_MS)
    link.follow()  # which forgets the connection that broke
    follow_until(link, lambda: link.look() is not None)
    link.pace(1e6)
    link.close()
    dealer.close(linger=0)


def test_a_connection_to_elsewhere_is_left_alone(context: zmq.Context[Any], relay: Relay) -> None:
    """A number of libzmq's may mean another connection by the time that it is heard of."""
    dealer = context.socket(zmq.DEALER)
    link = KernelLink(dealer, port=relay.port + 1)
    dealer.connect(f"tcp://127.0.0.1:{relay.port}")
    assert link.monitor.poll(_PATIENCE_MS)
    link.follow()
    assert link.look() is None
    link.close()
    dealer.close(linger=0)


def test_a_pace_is_set_and_taken_back() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(socket.create_connection(server.getsockname())) as connection,
    ):
        set_pace(connection, 1.5e6)
        assert connection.getsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE) == 1_500_000
        set_pace(connection, None)
        assert connection.getsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE) == -1


def test_bytes_that_arrived_are_counted() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(socket.create_connection(server.getsockname())) as connection,
    ):
        before = look_at(connection)
        taken, _ = server.accept()
        with taken:
            connection.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(taken.recv(left))
        after = look_at(connection)
    assert before is not None
    assert after is not None
    assert after.delivered_bytes > before.delivered_bytes


def test_what_is_no_connection_of_tcps_says_nothing() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert look_at(near) is None
