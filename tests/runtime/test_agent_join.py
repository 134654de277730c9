"""`helix-agent join URL --token T`: what it fills in for the agent that runs underneath."""

import argparse
import os
import shlex
import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from fake_web import TOKEN, FakeWeb, wait_until

from runtime.agent import join, service
from runtime.agent.options import agent_parser
from runtime.membership.hardware import machine_name
from runtime.protocol.join_tokens import TOKEN_VARIABLE
from tests.certificate import write_certificate

URL = "http://127.0.0.1:8000"


def options_of(*words: str, environ: dict[str, str] | None = None) -> list[str]:
    known, rest = join._parser().parse_known_args(["join", *words])
    return join.agent_options(known, rest, environ=environ or {"XDG_STATE_HOME": "/state"})


def parsed(options: list[str]) -> argparse.Namespace:
    """As the agent reads them."""
    return agent_parser().parse_args(options)


def test_a_first_start_needs_the_address_and_the_token_only() -> None:
    told = parsed(options_of(URL, "--token", "hlxj_x"))
    assert (told.server, told.token) == (URL, "hlxj_x")
    assert told.name is None
    assert told.data_dir == Path("/state/helix-agent")


def test_help_lists_what_people_ask_for_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        join._parser().parse_args(["join", "--help"])
    told = capsys.readouterr().out
    assert {"--region", "--memory", "24GiB"} <= set(told.replace(",", " ").split())


def test_a_later_start_needs_no_token_and_keeps_the_name_it_has() -> None:
    told = parsed(options_of(URL))
    assert (told.token, told.name) == (None, None)


def test_what_is_said_is_passed_on() -> None:
    told = parsed(
        options_of(
            URL, "--token", "t", "--name", "gpu-7", "--data-dir", "/d", "--data-host", "10.0.0.7",
            "--region", "attic", "--threads", "2", "--memory", "220M",
        )
    )  # fmt: skip
    assert told.memory_budget_bytes == 220_000_000
    assert (told.name, told.data_dir, told.data_host) == ("gpu-7", Path("/d"), "10.0.0.7")
    assert (told.region, told.threads) == ("attic", 2)


def test_without_a_place_for_state_it_is_in_the_home_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert join.default_data_dir({}) == Path("/home/ada/.local/state/helix-agent")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu-7", "gpu-7"),
        ("gpu-7.lab.example", "gpu-7"),
        ("my gpu!", "my-gpu"),
        ("...", "node"),
        ("coordinator", "coordinator-node"),
    ],
)
def test_a_machine_is_called_as_its_host(
    host: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert machine_name() == name


def test_the_token_of_the_environment_is_hidden_from_child_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with FakeWeb() as web:
        assert join.main(["join", web.url, "--data-dir", str(tmp_path), "--join-only"]) == 0
        assert len(web.registrations) == 1
    assert TOKEN_VARIABLE not in os.environ


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


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where systemd runs, of a user who is not root; the log of what it was asked."""
    log = tmp_path / "asked"
    for name in ("systemctl", "loginctl"):
        program = tmp_path / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(service, "_SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr(service, "is_root", lambda: False)
    return log


def test_a_service_joins_first_and_its_unit_has_no_token(
    systemd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeWeb() as web:
        certificate = tmp_path / "site.pem"
        write_certificate(certificate, tmp_path / "key.pem", host="localhost")
        words = [web.url, "--token", TOKEN, "--region", "the attic", "--threads", "2"]
        words += ["--ca", str(certificate)]
        assert join.main(["join", *words, "--service"]) == 0
        assert [one.region for one in web.registrations] == ["the attic"]
        unit = tmp_path / "config" / "systemd" / "user" / service.UNIT
        (command,) = [line for line in unit.read_text().splitlines() if "ExecStart=" in line]
        started = shlex.split(command.partition("=")[2])[1:]
        known, rest = join._parser().parse_known_args(started)
        told = parsed(join.agent_options(known, rest, environ={}))
        assert (told.server, told.token, told.threads) == (web.url, None, 2)
        assert (told.region, told.data_dir) == ("the attic", tmp_path / "state" / "helix-agent")
        assert told.ca == tmp_path / "state" / "helix-agent" / "ca.pem"
        assert told.ca.read_text() == certificate.read_text()
        assert TOKEN not in unit.read_text()
    asked = systemd.read_text().splitlines()
    assert asked[-4:] == [
        "systemctl --user daemon-reload",
        f"systemctl --user enable {service.UNIT}",
        f"systemctl --user restart {service.UNIT}",
        "loginctl enable-linger",
    ]
    assert "journalctl --user" in capsys.readouterr().out


def test_a_service_inherits_what_reaches_the_hub_and_its_unit_shows_no_secret(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in service.INHERITED:
        monkeypatch.delenv(name, raising=False)
    given = {
        "CUDA_VISIBLE_DEVICES": "1,2",
        "HF_TOKEN": "hf_secret",
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": "https://hub.example",
        "HTTPS_PROXY": 'http://ada:50%"$HOME`\\@proxy.example:3128',
        "no_proxy": "10.0.0.0/8, .lab",
    }
    folder = tmp_path / "config" / "systemd" / "user"
    unit, file = folder / service.UNIT, folder / "helix-agent.env"
    with FakeWeb() as web:
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        assert join.main(["join", web.url, "--token", TOKEN, "--service"]) == 0
        assert f"EnvironmentFile={file}" in unit.read_text().splitlines()
        assert "hf_secret" not in unit.read_text()
        assert "proxy.example" not in unit.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        # A shell reads what is within double quotes as systemd does.
        command = ["sh", "-c", f"set -a; . {shlex.quote(str(file))}; exec env -0"]
        read = subprocess.run(command, env={"PATH": os.defpath}, capture_output=True, check=True)
        lines = read.stdout.decode().rstrip("\0").split("\0")
        assert {line for line in lines if line.startswith(service.INHERITED)} == {
            f"{name}={value}" for name, value in given.items()
        }
        for name in given:
            monkeypatch.delenv(name)
        assert join.main(["join", web.url, "--service"]) == 0
    assert "EnvironmentFile" not in unit.read_text()
    assert not file.exists()


def test_a_service_whose_token_is_refused_leaves_no_unit(
    systemd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeWeb() as web:
        assert join.main(["join", web.url, "--token", "hlxj_spent", "--service"]) == 2
    assert "copy a fresh one" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()


def test_a_service_that_is_stopped_before_it_joined_changes_nothing(
    systemd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = 1_000
    with FakeWeb() as web:
        web.troubled_answers = refused

        def stop() -> None:
            wait_until(lambda: web.troubled_answers < refused, what="it has tried to join")
            os.kill(os.getpid(), signal.SIGTERM)

        stopping = threading.Thread(target=stop)
        stopping.start()
        assert join.main(["join", web.url, "--token", TOKEN, "--service"]) == 2
        stopping.join()
    assert "stopped before this machine joined" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()
    asked = systemd.read_text().splitlines()
    assert asked[-1] == f"systemctl --user start {service.UNIT}", "the one of before runs again"


def test_a_machine_without_systemd_refuses_a_service_before_the_token_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service, "_SYSTEMD_RUNS", tmp_path / "none")
    with FakeWeb() as web:
        assert join.main(["join", web.url, "--token", TOKEN, "--service"]) == 2
        assert not web.registrations
    assert "leave --service out" in capsys.readouterr().err


def test_a_unit_that_does_not_start_says_why(
    systemd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = tmp_path / "programs" / "loginctl"
    failing.write_text("#!/bin/sh\necho 'Access denied' >&2\nexit 1\n")
    with FakeWeb() as web:
        assert join.main(["join", web.url, "--token", TOKEN, "--service"]) == 2
    said = capsys.readouterr().err
    assert "`loginctl enable-linger` failed" in said
    assert "Access denied" in said
