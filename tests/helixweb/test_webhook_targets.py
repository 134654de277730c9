"""Where webhooks may not lead: attacks on the guard, and names that change their mind."""

import ipaddress
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from helixweb.alerting import deliveries, outbound
from tests.answering import QuietHandler, answering

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70/_x",
        "//example.org/hook",
        "example.org/hook",
        "http://",
        "http:///hook",
        "http://user:password@example.org/",
        "http://example.org@127.0.0.1/",
        "http://example.org%40127.0.0.1/",
        "http://127.0.0.1\\@example.org/",
        "http://example.org:99999/",
        "http://example.org:port/",
        "http://example.org/#@127.0.0.1/",
        "http://exam\tple.org/",
        "http://example.org/\r\nX-Evil: 1",
        "http://exämple.org/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        f"http://example.org/{'x' * 600}",
    ],
)
def test_what_is_no_plain_url_is_refused_before_anything_is_looked_up(url: str) -> None:
    with pytest.raises(outbound.TargetRefused):
        outbound.parse_target(url)


FORBIDDEN = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1",  # noqa: S104
    "169.254.169.254", "192.0.0.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255",
    "240.0.0.1", "::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fe80::1%eth0", "fec0::1", "feff::1",
]  # fmt: skip


@pytest.mark.parametrize("found", [*([address] for address in FORBIDDEN), ["8.8.8.8", "10.0.0.9"]])
def test_a_name_that_leads_to_what_is_not_public_is_refused(found: list[str]) -> None:
    target = outbound.parse_target("https://hooks.example/x")
    with pytest.raises(outbound.TargetRefused, match="not a public address"):
        outbound.checked_address(target, allowed=[], resolve=lambda host, port: found)


@pytest.mark.parametrize(
    ("networks", "address"),
    [
        ([], "8.8.8.8"), ([], "2606:4700::1111"), ([], "::ffff:8.8.8.8"),
        (["10.0.0.0/8"], "10.1.2.3"), (["10.0.0.0/8"], "::ffff:10.1.2.3"),
        (["fd00::/8"], "fd00::7"),
    ],
)  # fmt: skip
def test_public_and_allowed_addresses_may_be_reached(networks: list[str], address: str) -> None:
    target = outbound.parse_target("http://hooks.example/")
    allowed = [ipaddress.ip_network(network) for network in networks]
    found = outbound.checked_address(target, allowed=allowed, resolve=lambda host, port: [address])
    assert found == address
    with pytest.raises(outbound.TargetRefused):
        outbound.checked_address(target, allowed=allowed, resolve=lambda host, port: ["127.0.0.1"])


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "[::ffff:7f00:1]"]
)
def test_other_ways_to_write_this_machine_lead_to_this_machine(host: str) -> None:
    """The system's own look-up reads them; what it finds is what is checked."""
    with pytest.raises((outbound.TargetRefused, outbound.NotDelivered)):
        outbound.checked_address(outbound.parse_target(f"http://{host}/"), allowed=[])


def test_a_name_that_cannot_be_looked_up_is_tried_again_later() -> None:
    def fails(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror("no such name")

    with pytest.raises(outbound.NotDelivered, match="cannot be looked up"):
        outbound.checked_address(
            outbound.parse_target("http://hooks.example/"), allowed=[], resolve=fails
        )


@pytest.fixture
def hanging() -> Iterator[outbound.Resolve]:
    """A resolver that says nothing until the test is over, and then what is not public."""
    over, begun = threading.Event(), []

    def resolve(host: str, port: int) -> Sequence[str]:
        begun.append(threading.current_thread())
        over.wait(60)
        return ["10.0.0.1"]

    yield resolve
    over.set()
    for thread in begun:
        thread.join(60)


def test_a_resolver_that_hangs_holds_no_worker(hanging: outbound.Resolve) -> None:
    """And what it says at last, which nobody has checked, is used by nobody."""
    with receiver() as server:
        with pytest.raises(
            outbound.NotDelivered, match=r"hooks\.example was not looked up within 0\.05 s"
        ):
            outbound.post(
                f"http://hooks.example:{server.port}/",
                body=b"{}",
                headers={},
                allowed=LOOPBACK,
                resolve=hanging,
                looked_up_within_s=0.05,
            )
        assert send(server) == 204  # the next one is not behind it
        assert len(server.asked) == 1


def test_look_ups_that_hang_do_not_pile_up(hanging: outbound.Resolve) -> None:
    target = outbound.parse_target("http://hooks.example/")
    for _ in range(outbound.MOST_LOOKUPS):
        with pytest.raises(outbound.NotDelivered, match="within"):
            outbound.checked_address(target, allowed=[], resolve=hanging, within_s=0.01)
    for _ in range(3):
        with pytest.raises(outbound.NotDelivered, match="8 look-ups before it hang"):
            outbound.checked_address(target, allowed=[], resolve=hanging, within_s=0.01)
    waiting = [one for one in threading.enumerate() if one.name == "look-up of hooks.example"]
    assert len(waiting) == outbound.MOST_LOOKUPS


def test_all_tries_of_a_delivery_fit_into_its_lease() -> None:
    longest_s = 2 * outbound.LOOKED_UP_WITHIN_S + outbound.WITHIN_S
    assert longest_s < deliveries.LEASE.total_seconds()


class Receiver(ThreadingHTTPServer):
    """Notes what comes and answers as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: tuple[int, dict[str, str], bytes] = (204, {}, b"")
        self.release = threading.Event()
        self.hangs = False

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(QuietHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.asked.append((self.path, dict(self.headers), self.body()))
        if self.server.hangs:
            self.server.release.wait(30)
        status, headers, content = self.server.answer
        self.answer(status, content, **headers)


@contextmanager
def receiver() -> Iterator[Receiver]:
    with answering(Receiver()) as server:
        try:
            yield server
        finally:
            server.release.set()


def send(server: Receiver, **more: Any) -> int:
    fields = {"allowed": LOOPBACK, "resolve": lambda host, port: ["127.0.0.1"], **more}
    return outbound.post(
        f"http://hooks.example:{server.port}/in?x=1", body=b"{}", headers={"A": "b"}, **fields
    )


def test_the_connection_goes_to_the_address_that_was_checked_whatever_the_name_says_next() -> None:
    """DNS rebinding: the name is asked once, and the connection is to what was found then."""
    asked = []

    def rebinds(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    with receiver() as server:
        assert send(server, resolve=rebinds) == 204
        ((path, headers, body),) = server.asked
    assert asked == ["hooks.example"]
    assert (path, body) == ("/in?x=1", b"{}")
    assert headers["Host"] == f"hooks.example:{server.port}"


def test_what_an_address_holds_gets_into_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """It often is a key."""
    caplog.set_level(logging.INFO)
    with receiver() as server:
        for status in (200, 302, 500):
            server.answer = (status, {}, b"")
            assert send(server) == status
        assert {path for path, _, _ in server.asked} == {"/in?x=1"}
    assert "x=1" not in caplog.text


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    with receiver() as server:
        server.answer = (302, {"Location": f"http://127.0.0.1:{server.port}/inner"}, b"")
        assert send(server) == 302
        assert len(server.asked) == 1


def test_no_proxy_of_the_environment_gets_to_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with receiver() as server:
        assert send(server) == 204


def test_of_a_long_answer_only_the_beginning_is_read() -> None:
    with receiver() as server:
        server.answer = (200, {}, b"x" * (4 * outbound.MOST_ANSWER_BYTES))
        assert send(server) == 200


def test_who_does_not_answer_in_time_is_left() -> None:
    with receiver() as server:
        server.hangs = True
        with pytest.raises(outbound.NotDelivered, match="within"):
            send(server, within_s=0.3)


def test_nobody_there_is_no_answer() -> None:
    with receiver() as server:
        pass
    with pytest.raises(outbound.NotDelivered):
        send(server)
