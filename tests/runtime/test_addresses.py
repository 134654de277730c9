"""Which address of this machine a process receives at, and which one it tells others to dial."""

import argparse
import ipaddress

import pytest

from runtime.agent.options import agent_parser
from runtime.coordinator.options import Options, parse_options
from runtime.coordinator.place import clients_url, with_hosts
from runtime.membership.data_address import AddressError, choose_host, data_endpoint
from runtime.protocol.addresses import Advertised, address_towards, advertised

HERE, ELSEWHERE = "http://127.0.0.1:8000", "http://[::1]:8000"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - told apart, not bound


def coordinator(*words: str, server: str = HERE) -> Options:
    return with_hosts(parse_options(["--server", server, "--data-dir", "x", *words]))


@pytest.mark.parametrize(("server", "address"), [(HERE, "127.0.0.1"), (ELSEWHERE, "::1")])
def test_without_options_processes_listen_on_the_way_to_their_site(
    server: str, address: str
) -> None:
    assert choose_host("", server=server, advertised=None) == address
    told = coordinator(server=server)
    assert (told.host, told.data_host) == (address, address)


def test_an_address_is_found_before_the_sites_name_is_known() -> None:
    try:
        assert ipaddress.ip_address(address_towards("http://no-such-host.invalid"))
    except OSError:  # a machine without a default route
        with pytest.raises(AddressError, match="--data-host"):
            choose_host("", server="http://no-such-host.invalid", advertised=None)


def test_stages_come_where_chat_clients_do_unless_that_is_everywhere() -> None:
    told = coordinator("--host", "127.0.0.2")
    assert (told.data_host, clients_url(told, 8100)) == ("127.0.0.2", "http://127.0.0.2:8100")
    told = coordinator("--host", EVERYWHERE)
    assert (told.host, told.data_host) == (EVERYWHERE, "127.0.0.1")
    assert clients_url(told, 8100) == "http://127.0.0.1:8100"
    told = coordinator("--host", EVERYWHERE, "--data-host", "::1")
    assert clients_url(told, 8100) == "http://[::1]:8100"


def test_behind_nat_others_dial_another_address_than_is_bound() -> None:
    words = ["--data-host", EVERYWHERE, "--advertise", "gate.example:7000"]
    agent = agent_parser().parse_args(["--server", HERE, "--data-dir", "x", *words])
    host = choose_host(agent.data_host, server=HERE, advertised=agent.advertise)
    assert data_endpoint(host, 9000) == f"tcp://{EVERYWHERE}:9000"
    assert data_endpoint(host, 9000, agent.advertise) == "tcp://gate.example:7000"
    told = coordinator("--host", EVERYWHERE, "--advertise", "gate.example")
    assert data_endpoint(told.data_host, 8100, told.advertise) == "tcp://gate.example:8100"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("192.0.2.7", "192.0.2.7", 0),
        ("192.0.2.7:7000", "192.0.2.7", 7000),
        ("gate.example:7000", "gate.example", 7000),
        ("[2001:db8::1]:7000", "2001:db8::1", 7000),
        ("[2001:db8::1]", "2001:db8::1", 0),
        ("2001:db8::1", "2001:db8::1", 0),
    ],
)
def test_advertised_addresses_are_read(text: str, host: str, port: int) -> None:
    assert advertised(text) == Advertised(host=host, port=port)


@pytest.mark.parametrize("text", ["", EVERYWHERE, "*", ":7000", "a b", "a:99999", "a:x", "127.1"])
def test_an_address_that_nobody_can_dial_is_not_advertised(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"give HOST or HOST:PORT"):
        advertised(text)


@pytest.mark.parametrize("host", ["*", EVERYWHERE, "::"])
def test_a_host_that_nobody_can_dial_is_refused(host: str) -> None:
    with pytest.raises(AddressError, match="--advertise"):
        choose_host(host, server=HERE, advertised=None)
