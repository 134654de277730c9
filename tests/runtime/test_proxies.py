"""Proxies of the environment: never for this machine, and named when they stand in the way."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterator

import psutil
import pytest
from fake_web import FakeWeb
from free_port import free_port

from helixweb.client import BadAddress, Client, NotAuthenticated, Unreachable
from helixweb.command_line.main import main
from runtime.checkpoints.hub import http_client
from runtime.checkpoints.hub_names import HubError, HubSettings
from runtime.protocol.proxies import BadProxy, may_use_proxy
from runtime.web_client import ServerUnreachable, WebClient

ELSEWHERE = "http://192.0.2.1:8000"


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy at which nothing listens."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb() as fake:
        yield fake


def test_commands_ask_a_site_on_this_machine_without_the_proxy(web: FakeWeb) -> None:
    with Client(web.url) as client, pytest.raises(NotAuthenticated):
        client.call("GET", "/agent/desired")


def test_chat_asks_an_endpoint_on_this_machine_without_the_proxy(
    web: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["chat", "--endpoint", web.url, "--model", "small", "Hello"])
    assert "answered 404" in capsys.readouterr().err


def test_every_address_of_this_machine_is_asked_without_the_proxy() -> None:
    for places in psutil.net_if_addrs().values():
        for place in places:
            if place.family == socket.AF_INET:
                assert not may_use_proxy(f"http://{ipaddress.ip_address(place.address)}:8000")
    assert may_use_proxy(ELSEWHERE)
    assert may_use_proxy("https://helix.example")


def test_a_server_that_does_not_answer_through_the_proxy_is_reported_with_no_proxy() -> None:
    async def join() -> None:
        async with WebClient(ELSEWHERE) as client:
            await client.agent_desired()

    said = "the proxy of HTTP_PROXY was asked: add 192.0.2.1 to NO_PROXY"
    with pytest.raises(ServerUnreachable, match=said):
        asyncio.run(join())
    with Client(ELSEWHERE) as client, pytest.raises(Unreachable, match=said):
        client.call("GET", "/me/")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks://127.0.0.1:1080"),
        ("HTTP_PROXY", "http://proxy:port"),
        ("NO_PROXY", "[::1]"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_reported_by_its_variables(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadProxy, match="ALL_PROXY or NO_PROXY"):
        WebClient(ELSEWHERE)
    with pytest.raises(BadAddress, match="ALL_PROXY or NO_PROXY"):
        Client(ELSEWHERE)
    with pytest.raises(HubError, match="ALL_PROXY or NO_PROXY"):
        http_client(HubSettings(endpoint=ELSEWHERE))
