"""`python -m runtime agent` as a process: its options, and how it ends."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from fake_web import PATIENCE_S, TOKEN, FakeWeb, wait_until

from runtime.agent.main import main
from tests.programs import started


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb() as fake:
        yield fake


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--token", "hlxj_wrong", "--name", "n1"], "copy a fresh one"),
        (["--name", "n1"], "--token"),
        (["--token", TOKEN, "--name", "n1", "--data-host", "*"], "--data-host '*'"),
        (["--token", TOKEN, "--name", "n1", "--data-host", "192.0.2.1"], "192.0.2.1"),
        (["--token", TOKEN, "--name", "n" * 65], "64 characters"),
    ],
)
def test_an_agent_started_wrongly_says_so_in_one_line_and_exits_2(
    tmp_path: Path,
    web: FakeWeb,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    assert main(["--server", web.url, "--data-dir", str(tmp_path / "data"), *arguments]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("agent: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert not web.registrations


@pytest.mark.parametrize(
    "arguments",
    [
        ["--memory", "-1"],
        ["--relative-speed", "2"],
        ["--relative-speed", "nan"],
        ["--threads", "0"],
        ["--data-port", "70000"],
    ],
)
def test_an_option_out_of_range_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--server", "http://127.0.0.1:9", "--data-dir", str(tmp_path), *arguments])
    assert exit_.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.processes
def test_an_agent_process_joins_keeps_its_port_and_goes_quietly_on_sigterm(
    tmp_path: Path, web: FakeWeb
) -> None:
    command = [
        sys.executable, "-m", "runtime", "agent", "--server", web.url, "--data-dir",
        str(tmp_path / "data"), "--memory-budget-bytes", "1000", "--relative-speed", "0.5",
    ]  # fmt: skip
    for before, arguments in enumerate((["--token", TOKEN, "--name", "n1"], [])):
        web.observed.clear()
        with started([*command, *arguments], stderr=PIPE) as agent:
            wait_until(
                lambda before=before: (
                    (web.last and len(web.announcements) == before) or agent.poll() is not None
                ),
                what="a heartbeat",
            )
            agent.send_signal(signal.SIGTERM)
            _, errors = agent.communicate(timeout=PATIENCE_S)
        assert agent.returncode == 0, errors.decode()
        assert b"Traceback" not in errors
    (registered,), (announced,) = web.registrations, web.announcements
    assert announced.data_endpoint == registered.data_endpoint
    assert announced.data_public_key == registered.data_public_key
    assert registered.hardware.memory_budget_bytes == 1000
    assert registered.hardware.relative_speed == 0.5
    assert announced.hardware == registered.hardware


@pytest.mark.processes
def test_an_agent_waiting_for_its_server_goes_on_sigterm(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "runtime", "agent", "--server", "http://127.0.0.1:9",
        "--token", TOKEN, "--name", "n1", "--data-dir", str(tmp_path),
    ]  # fmt: skip
    with started(command, stderr=PIPE) as agent:
        assert agent.stderr is not None
        assert any(b"cannot join yet" in line for line in agent.stderr)
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=PATIENCE_S)
    assert agent.returncode == 0
