"""`helix-agent join URL --token T`: what it fills in for the agent that runs underneath."""

import argparse
import ipaddress
import socket
from pathlib import Path

import pytest

from runtime.agent import join
from runtime.agent import main as agent

URL = "http://127.0.0.1:8000"


def options_of(*words: str, environ: dict[str, str] | None = None) -> list[str]:
    known, rest = join._parser().parse_known_args(["join", *words])
    return join.agent_options(known, rest, environ=environ or {"XDG_STATE_HOME": "/state"})


def parsed(options: list[str]) -> argparse.Namespace:
    """As the agent reads them."""
    return agent._parser().parse_args(options)


def test_a_first_start_needs_the_address_and_the_token_only() -> None:
    told = parsed(options_of(URL, "--token", "hlxj_x"))
    assert (told.server, told.token) == (URL, "hlxj_x")
    assert told.name == join.machine_name()
    assert told.data_dir == Path("/state/helix-agent")
    assert told.data_host == "127.0.0.1"


def test_a_later_start_needs_no_token_and_keeps_the_name_it_has() -> None:
    told = parsed(options_of(URL))
    assert (told.token, told.name) == (None, None)


def test_what_is_said_is_passed_on() -> None:
    told = parsed(
        options_of(
            URL, "--token", "t", "--name", "gpu-7", "--data-dir", "/d", "--data-host", "10.0.0.7",
            "--region", "attic", "--threads", "2",
        )
    )  # fmt: skip
    assert (told.name, told.data_dir, told.data_host) == ("gpu-7", Path("/d"), "10.0.0.7")
    assert (told.region, told.threads) == ("attic", 2)


def test_without_a_place_for_state_it_is_in_the_home_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert join.default_data_dir({}) == Path("/home/ada/.local/state/helix-agent")


@pytest.mark.parametrize(
    ("host", "name"),
    [("gpu-7", "gpu-7"), ("gpu-7.lab.example", "gpu-7"), ("my gpu!", "my-gpu"), ("...", "node")],
)
def test_a_machine_is_called_as_its_host(
    host: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert join.machine_name() == name


def test_other_nodes_are_told_the_address_on_the_way_to_the_server() -> None:
    assert join.address_towards("http://127.0.0.1:1") == "127.0.0.1"
    assert ipaddress.ip_address(join.address_towards("https://192.0.2.1"))
    assert join.address_towards("http://no-such-host.invalid") == "127.0.0.1"


def test_a_server_that_is_none_is_refused_by_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["join", "nonsense", "--token", "t", "--data-dir", str(tmp_path)]
    assert join.main(words) == 2
    assert "nonsense" in capsys.readouterr().err


def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        join.main(["join", URL, "--frob"])
    assert ended.value.code == 2
    assert "--frob" in capsys.readouterr().err
