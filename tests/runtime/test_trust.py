"""Servers with a certificate of a private issuer: refused with the remedy, trusted with --ca."""

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from helixweb.client import Client, ClientError, Unreachable
from helixweb.command_line.failures import CommandFailed
from helixweb.operations.site_processes import is_trusted
from runtime.agent.options import agent_parser
from runtime.coordinator.options import parse_options
from runtime.protocol.trust import ca_file
from runtime.web_client import ServerRefused, ServerUnreachable, WebClient
from tests.certificate import https_server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with https_server(tmp_path_factory.mktemp("tls")) as found:
        yield found


def ask(url: str, ca: Path | None) -> None:
    async def talk() -> None:
        async with WebClient(url, ca=ca) as client:
            await client.agent_desired()

    asyncio.run(talk())


def test_agents_and_coordinators_name_the_certificate_and_the_option(
    site: tuple[str, Path],
) -> None:
    url, certificate = site
    with pytest.raises(ServerUnreachable, match=r"certificate of .* is not trusted: .*--ca FILE"):
        ask(url, None)
    with pytest.raises(ServerRefused, match="501"):
        ask(url, certificate)


def test_processes_take_the_file_as_an_option(site: tuple[str, Path]) -> None:
    words = ["--server", site[0], "--data-dir", "x", "--ca", str(site[1])]
    assert agent_parser().parse_args(words).ca == parse_options(words).ca == site[1]


def test_the_command_line_trusts_it_too(site: tuple[str, Path]) -> None:
    url, certificate = site
    with Client(url) as client, pytest.raises(Unreachable, match=r"not trusted.*--ca FILE"):
        client.clusters.page()
    with Client(url, ca=certificate) as client, pytest.raises(ClientError, match="501"):
        client.clusters.page()


def test_a_site_is_not_up_while_its_coordinator_does_not_trust_it(site: tuple[str, Path]) -> None:
    url, certificate = site
    assert is_trusted(url, ca=certificate)
    with pytest.raises(CommandFailed, match=r"certificate of .* is not trusted .*--ca FILE"):
        is_trusted(url, ca=None)
    with pytest.raises(CommandFailed, match="--url the name"):
        is_trusted(url.replace("localhost", "127.0.0.1"), ca=certificate)
    assert not is_trusted("https://localhost:9", ca=None), "it does not answer yet"


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_that_is_none_of_certificates_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(argparse.ArgumentTypeError, match=r"ca\.pem.*give a PEM file"):
        ca_file(str(path))
