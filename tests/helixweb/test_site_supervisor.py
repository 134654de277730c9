"""Who looks after the processes of a site: what dies comes back, what is asked to end ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helixweb.operations import supervisor as supervising
from helixweb.operations.supervisor import Child, Signals, Stopped, Supervisor
from tests.runtime.ended import has_ended
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.processes

SLEEPS = "import time; time.sleep(600)"
ENDS = ((signal.SIGTERM, 5.0),)


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def supervisor(said: list[str], clock: Clock) -> Iterator[Supervisor]:
    made = Supervisor(say=said.append, clock=clock)
    yield made
    made.clock = time.monotonic
    made.stop()


def child(program: str, *, name: str = "web", log: Path | None = None, **more: object) -> Child:
    arguments = {"ends": ENDS, **more}
    return Child(name=name, command=(sys.executable, "-c", program), log=log, **arguments)  # type: ignore[arg-type]


def wait_for_end(supervisor: Supervisor) -> None:
    supervisor.kept[0].process.wait(PATIENCE_S)
    supervisor.tend()


def test_restarts_have_growing_pauses(
    supervisor: Supervisor, said: list[str], clock: Clock
) -> None:
    supervisor.start(child("raise SystemExit(3)"))
    pauses = []
    for _ in range(4):
        wait_for_end(supervisor)
        kept = supervisor.kept[0]
        assert kept.again_at is not None
        pauses.append(kept.again_at - clock.now)
        clock.now = kept.again_at
        supervisor.tend()
        assert kept.runs
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert "web ended with exit code 3; again in 0.5 s" in said[0]
    assert sum("was started again" in line for line in said) == 4


def test_pauses_are_bounded_and_reset_by_a_long_run(supervisor: Supervisor, clock: Clock) -> None:
    supervisor.start(child("raise SystemExit(1)"))
    kept = supervisor.kept[0]
    kept.pause_s = 20.0
    wait_for_end(supervisor)
    assert kept.pause_s == supervising.LONGEST_PAUSE_S
    clock.now += supervising.LONGEST_PAUSE_S
    supervisor.tend()
    clock.now += supervising.WELL_AFTER_S
    wait_for_end(supervisor)
    assert kept.again_at == clock.now + supervising.FIRST_PAUSE_S


def test_usage_errors_are_final(supervisor: Supervisor, said: list[str], tmp_path: Path) -> None:
    program = "import sys; sys.stderr.write('coordinator: the token is used\\n'); sys.exit(2)"
    log, remedy = tmp_path / "log", "Give it another."
    supervisor.start(child(program, name="coordinator", log=log, remedy=remedy))
    wait_for_end(supervisor)
    assert supervisor.kept[0].given_up
    assert "is not started again" in said[0]
    assert "the token is used" in said[1]
    assert said[2:] == ["Give it another."]


def test_the_end_waits_for_no_pause(supervisor: Supervisor, clock: Clock) -> None:
    supervisor.start(child("raise SystemExit(1)"))
    wait_for_end(supervisor)
    clock.now += 0.2
    assert supervisor.next_look_s() == pytest.approx(0.3)


def test_who_does_not_hear_the_first_signal_gets_the_next(tmp_path: Path) -> None:
    stubborn = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGQUIT, lambda *_: sys.exit(0))\n"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch()\n"
        "time.sleep(600)"
    )
    supervisor = Supervisor(say=lambda text: None)
    supervisor.start(child(stubborn, ends=((signal.SIGTERM, 0.1), (signal.SIGQUIT, PATIENCE_S))))
    until((tmp_path / "up").exists, "it is up")
    supervisor.stop()
    assert supervisor.kept[0].process.returncode == 0


def test_who_hears_no_signal_is_killed_with_all_it_started(tmp_path: Path) -> None:
    deaf = (
        "import pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"started = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(started.pid) + '.')\n"
        "time.sleep(600)"
    )
    supervisor = Supervisor(say=lambda text: None)
    supervisor.start(child(deaf, ends=((signal.SIGTERM, 0.1),)))
    grandchild = written_pid(tmp_path / "pid")
    supervisor.stop()
    assert supervisor.kept[0].process.returncode == -signal.SIGKILL
    until(lambda: has_ended(grandchild), "it has ended")


def written_pid(path: Path) -> int:
    """That a program writes there, with a full stop behind it."""
    until(lambda: path.exists() and path.read_text().endswith("."), f"{path} is written")
    return int(path.read_text().rstrip("."))


@pytest.mark.parametrize("has_room", [True, False])
def test_a_long_log_is_cut_and_its_old_part_kept_where_there_is_room(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    monkeypatch.setattr(supervising, "LONGEST_LOG_BYTES", 10)
    log, old = tmp_path / "web.log", tmp_path / "web.1.log"
    log.write_text("0123456789 and more")
    if not has_room:
        old.mkdir()  # cannot be written
    supervisor.start(child(SLEEPS, log=log))
    supervisor.tend()
    assert log.read_text() == ""
    assert not has_room or old.read_text() == "0123456789 and more"


def test_what_cannot_be_started_again_now_is_tried_later(
    supervisor: Supervisor, said: list[str], clock: Clock, tmp_path: Path
) -> None:
    log = tmp_path / "web.log"
    supervisor.start(child("raise SystemExit(3)", log=log))
    wait_for_end(supervisor)
    log.unlink()
    log.mkdir()  # cannot be written
    clock.now += supervising.LONGEST_PAUSE_S
    supervisor.tend()
    assert "web cannot be started" in said[-1]
    log.rmdir()
    clock.now += supervising.LONGEST_PAUSE_S
    supervisor.tend()
    assert supervisor.kept[0].runs


def test_a_signal_to_end_ends_the_waiting_and_stays_known() -> None:
    with Signals() as signals:
        signals.wait(0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(2):
            with pytest.raises(Stopped) as stopped:
                signals.wait(PATIENCE_S)
            assert stopped.value.number == signal.SIGTERM


def test_the_end_of_a_child_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end for want of time."""
    woken = []

    def waiting(*wanted: object) -> tuple[list[int], list[int], list[int]]:
        found = select(*wanted)
        woken.extend(found[0])
        return found

    select = supervising.select.select
    monkeypatch.setattr(supervising.select, "select", waiting)
    with Signals() as signals:
        process = subprocess.Popen([sys.executable, "-c", ""])
        signals.wait(PATIENCE_S)
        process.wait()
    assert woken


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel does this on Linux")
def test_children_of_a_supervisor_that_was_killed_end(tmp_path: Path) -> None:
    program = (
        "import pathlib, signal, time\n"
        "from helixweb.operations.supervisor import Child\n"
        f"child = Child(name='x', command=({sys.executable!r}, '-c', {SLEEPS!r}), ends=())\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.start().pid) + '.')\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    started = written_pid(tmp_path / "pid")
    process.kill()
    process.wait()
    until(lambda: has_ended(started), "it has ended")
