"""Endpoints and keys that a node made up, and what becomes of a process that loses a thread."""

import subprocess
import sys
import textwrap

import pytest
import zmq
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from runtime.protocol.control import AgentIdentity, Hardware, PeerAddress
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.endpoints import parse_endpoint
from runtime.transport.zmq_sockets import KeyPair, sending_socket

HARDWARE = Hardware(
    hostname="h", cpu_count=1, memory_bytes=1_000_000, memory_budget_bytes=1_000_000
)
KEY = "k" * 40


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://127.0.0.1:8660/x y\r\nfoo", "ipc:///etc/passwd", "tcp://10.0.0.7", "tcp://:7000",
        "tcp://10.0.0.7:0", "tcp://10.0.0.7:65536", "tcp://256.0.0.7:7000", "tcp://-a:7000",
        "tcp://0.0.0.0:7000", "tcp://*:7000", "tcp://224.0.0.1:7000", "tcp://127.1:7000",
        "tcp://2130706433:7000", "tcp://0x7f000001:7000", "tcp://eth0;10.0.0.7:7000",
        "tcp://[::]:7000", "tcp://::1:7000", "tcp://a..b:7000", "tcp://10.0.0.7:7000\n",
        "udp://10.0.0.7:7000", "inproc://a", f"tcp://{'a' * 64}:7000", "tcp://h\u00f6st:7000",
        "tcp://_x:7000", "tcp://10.0.0.7:07000",
    ],
)  # fmt: skip
def test_an_endpoint_that_nobody_can_dial_is_refused_where_it_enters(endpoint: str) -> None:
    with pytest.raises(ValidationError, match=r"tcp://|host name|IP address|port|dialled"):
        AgentIdentity(hardware=HARDWARE, data_endpoint=endpoint, data_public_key=KEY)
    with pytest.raises(ValidationError):
        PeerAddress(name="a", endpoint=endpoint, public_key=KEY)


@pytest.mark.parametrize("key", ["#" * 40, " " * 40, "\u00fc" * 40, "k" * 39, "k" * 41])
def test_a_key_that_is_none_is_refused_where_it_enters(key: str) -> None:
    with pytest.raises(ValidationError, match=r"CURVE key|40 characters"):
        AgentIdentity(hardware=HARDWARE, data_endpoint="tcp://10.0.0.7:7000", data_public_key=key)


@pytest.mark.parametrize(
    ("endpoint", "is_loopback"),
    [
        ("tcp://10.0.0.7:7000", False), ("tcp://node-1.example:65535", False),
        ("tcp://my_host:1", False), ("tcp://[2001:db8::1]:7000", False),
        ("tcp://127.8.8.8:1", True), ("tcp://localhost:1", True), ("tcp://[::1]:1", True),
        ("tcp://[::ffff:127.0.0.1]:1", True),
    ],
)  # fmt: skip
def test_an_endpoint_says_whether_it_is_loopback(endpoint: str, is_loopback: bool) -> None:
    assert parse_endpoint(endpoint).is_loopback is is_loopback


@settings(max_examples=300, deadline=None)
@example(endpoint="tcp://_x:7000", key=KEY)
@given(
    endpoint=st.from_regex(r"tcp://[a-z0-9.:_\[\]%*;-]{1,30}:[0-9]{1,6}", fullmatch=True),
    key=st.text(alphabet="0k#$", min_size=40, max_size=40),
)
def test_what_is_taken_is_never_refused_by_the_socket(endpoint: str, key: str) -> None:
    """The thread that connects has nobody to tell."""
    for address, public_key in ((endpoint, KEY), ("tcp://10.0.0.7:7000", key)):
        try:
            peer = PeerAddress(name="a", endpoint=address, public_key=public_key)
        except ValidationError:
            continue
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            socket = sending_socket(
                context, peer, keys=OWN_KEYS, security=DataSecurity.CURVE, most_waiting=1
            )
            socket.connect(peer.endpoint)
        finally:
            context.destroy(linger=0)


OWN_KEYS = KeyPair.generate()


def test_a_process_that_loses_a_thread_exits_instead_of_living_on_without_it() -> None:
    """The thread that watches peers fails for want of file descriptors, as it may."""
    program = textwrap.dedent(
        """
        import resource, sys, time
        from runtime import __main__ as command_line
        from runtime.protocol.control import PeerAddress
        from runtime.transport.zmq_sockets import KeyPair
        from runtime.transport.zmq_transport import ZmqTransport
        import zmq

        def main(argv):
            keys = KeyPair.generate()
            transport = ZmqTransport(name="a", bind="tcp://127.0.0.1:*", keys=keys)
            watch = transport.watch()
            used = len(__import__("os").listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
            peer = PeerAddress(name="b", endpoint="tcp://127.0.0.1:1", public_key="k" * 40)
            watch.follow({"b": peer})
            time.sleep(60)
            return 0

        sys.modules["lives_on"] = sys.modules["__main__"]
        command_line.PROGRAMS["lives-on"] = ("lives_on", "")
        sys.exit(command_line.main(["lives-on"]))
        """
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert "its thread 'watch' failed" in ended.stderr
    assert "Too many open files" in ended.stderr
