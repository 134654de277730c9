"""Servers with a certificate of a private issuer: refused with the remedy, trusted with --ca."""

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from helixweb.client import Client, ClientError, Unreachable
from helixweb.command_line import exit_codes
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.main import main
from helixweb.operations.site_processes import is_trusted
from runtime.agent.options import agent_parser
from runtime.coordinator.options import parse_options
from runtime.protocol.trust import ca_file, stays_here
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


def test_a_chat_trusts_it_at_an_endpoint_too(
    site: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["chat", "hi", "--endpoint", site[0], "--model", "m"]
    assert main(words) == exit_codes.UNREACHABLE
    assert "--ca FILE" in capsys.readouterr().err
    assert main([*words, "--ca", str(site[1])]) == exit_codes.UNREACHABLE
    assert "answered 501" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.8.8.8/v1", True),
        ("https://LOCALHOST:8000", True),
        ("http://hub.localhost", True),
        ("http://[::1]:8000", True),
        ("http://[::ffff:127.0.0.1]", True),
        ("http://127.0.0.1.example.org", False),
        ("http://10.0.0.7", False),
        ("https://helix.example.org/localhost", False),
        ("", False),
    ],
)
def test_what_stays_on_this_machine_is_said_by_its_host(url: str, is_here: bool) -> None:
    assert stays_here(url) is is_here
