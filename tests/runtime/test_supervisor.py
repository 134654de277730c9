"""The supervisor with real child processes that speak the real pipe."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from subprocess import PIPE

import fake_stage
import psutil
import pytest
from agent_rig import assignment
from ended import has_ended
from fake_web import PATIENCE_S, wait_until

from runtime.agent.reconcile import LocalState
from runtime.agent.supervisor import StageSettings, Supervisor
from runtime.membership.hardware import gpu_budgets_bytes
from runtime.process_log import ProcessLog
from runtime.protocol.control import Gpu
from runtime.protocol.phases import Phase
from tests.programs import started

pytestmark = pytest.mark.processes

SETTINGS = StageSettings(
    name="n1",
    bind="tcp://127.0.0.1:1",
    secret_key_file="curve.key",
    public_key="k" * 40,
    memory_budget_bytes=1 << 20,
    relative_speed=0.5,
    threads=3,
)


@pytest.fixture(autouse=True)
def _children_import_what_we_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


class Supervised:
    """A supervisor over `fake_stage`, and what its states were."""

    def __init__(
        self,
        directory: Path,
        *,
        stop_patience_s: float = PATIENCE_S,
        settings: StageSettings = SETTINGS,
    ) -> None:
        self.record = directory / "record"
        self.log = ProcessLog(directory / "stage.log")
        self.states: list[LocalState] = []
        self.changed = asyncio.Event()
        command = (sys.executable, fake_stage.__file__, str(self.record))
        self.supervisor = Supervisor(
            settings=settings.model_copy(update={"command": command}),
            log=self.log,
            on_change=self._remember,
            stop_patience_s=stop_patience_s,
        )

    def _remember(self) -> None:
        self.states.append(self.supervisor.local)
        self.changed.set()

    async def until(self, condition: Callable[[LocalState], object]) -> LocalState:
        while not condition(self.supervisor.local):
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), PATIENCE_S)
        return self.supervisor.local

    async def until_ready(self) -> None:
        await self.until(lambda local: local.running and local.running.phase is Phase.READY)

    @property
    def pid(self) -> int:
        return int(self.record.read_text().splitlines()[-1].split()[0])


def run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 2 * PATIENCE_S))


def test_a_stage_loads_becomes_ready_and_goes_when_asked(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("serves"))
        await supervised.until_ready()
        running = supervised.supervisor.local.running
        assert running is not None
        assert running.stats == fake_stage.STATS
        pid = supervised.pid
        await supervised.supervisor.stop()
        assert not psutil.pid_exists(pid)
        assert supervised.supervisor.local == LocalState()
        seen = [state.running for state in supervised.states]
        ratios = [one.loaded_ratio for one in seen if one and one.phase is Phase.LOADING]
        assert ratios == [0.0, 0.5]
        phases = [one.phase for one in seen if one]
        assert phases.index(Phase.READY) < phases.index(Phase.STOPPING)

    run(life())


def test_a_stage_that_runs_serves_the_next_generation_beside_until_the_one_before_is_retired(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        first, second, third = (assignment("serves", number) for number in (1, 2, 3))
        await supervised.supervisor.start(first)
        await supervised.until_ready()
        pid = supervised.pid
        await supervised.supervisor.add(second)
        await supervised.until_ready()
        ratios = [state.running.loaded_ratio for state in supervised.states if state.running]
        assert 0.1 in ratios
        await supervised.supervisor.add(third)
        await supervised.until_ready()
        running = supervised.supervisor.local.running
        assert running is not None
        assert running.serving == (first, second, third)
        assert supervised.pid == pid
        await supervised.supervisor.stop()
        assert supervised.supervisor.local == LocalState()
        await supervised.supervisor.add(first)  # no stage runs
        assert supervised.supervisor.local == LocalState()

    run(life())


def test_a_retired_generation_is_served_no_more(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("retires the one before", 1))
        await supervised.until_ready()
        last = assignment("retires the one before", 2)
        await supervised.supervisor.add(last)
        await supervised.until(lambda local: local.running and local.running.serving == (last,))
        await supervised.supervisor.stop()

    run(life())


@pytest.mark.parametrize("behaviour", ["has no room", "cannot read more"])
def test_a_stage_that_cannot_add_a_generation_goes_on_with_what_it_serves(
    tmp_path: Path, behaviour: str
) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        first, second = assignment(behaviour, 1), assignment(behaviour, 2)
        await supervised.supervisor.start(first)
        await supervised.until_ready()
        await supervised.supervisor.add(second)
        local = await supervised.until(
            lambda local: local.running and local.running.phase is Phase.IDLE
        )
        assert local.running is not None
        assert local.running.serving == (first,)
        if behaviour == "has no room":
            assert (local.running.refused, local.failure) == (second, None)
        else:
            assert local.failure is not None
            assert (local.failure.assignment, local.failure.message) == (second, behaviour)
        await supervised.supervisor.stop()

    run(life())


def test_a_stage_that_says_why_it_failed_is_quoted(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("fails"))
        local = await supervised.until(lambda local: local.failure)
        assert local.running is None
        assert local.failure is not None
        assert local.failure.message == "checkpoint lacks tensor x; copy it again"
        await supervised.supervisor.start(assignment("fails"))
        await supervised.until(lambda local: local.failure and local.failure.count == 2)
        await supervised.supervisor.stop()

    run(life())


def test_a_crash_is_told_with_the_last_line_of_the_log(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("crashes"))
        failure = (await supervised.until(lambda local: local.failure)).failure
        assert failure is not None
        assert failure.message == (
            "the stage exited with status 3: RuntimeError: out of everything "
            f"(log: {supervised.log.path})"
        )

    run(life())


def test_a_stage_that_is_killed_when_ready_is_a_failure_that_names_the_signal(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("dies when ready"))
        failure = (await supervised.until(lambda local: local.failure)).failure
        assert failure is not None
        assert failure.message.startswith("the stage was killed by signal 9")

    run(life())


@pytest.mark.parametrize(
    ("ranks", "each_gib"),
    [(1, 72), (2, 36), (3, 36)],  # the second GPU is smaller, and ranks hold the same
)
def test_each_rank_gets_the_budget_of_a_gpu_of_its_own(
    tmp_path: Path, ranks: int, each_gib: int
) -> None:
    gpus = [Gpu(name="NVIDIA", memory_bytes=gib << 30) for gib in (80, 40, 80)]
    settings = SETTINGS.model_copy(update={"gpu_budgets_bytes": gpu_budgets_bytes(gpus)})
    asked = assignment("tells its budget").model_copy(update={"tensor_parallel": ranks})

    async def life() -> None:
        supervised = Supervised(tmp_path, settings=settings)
        await supervised.supervisor.start(asked)
        await supervised.until_ready()
        await supervised.supervisor.stop()
        said = f"{each_gib << 30} bytes for each of {ranks} ranks"
        assert said in supervised.log.path.read_text()

    run(life())


def test_a_budget_that_a_person_gave_is_for_all_ranks_together() -> None:
    assert SETTINGS.budget_bytes(ranks=1) == SETTINGS.budget_bytes(ranks=4) == 1 << 20


def test_a_stage_that_will_not_go_is_killed(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path, stop_patience_s=0.2)
        await supervised.supervisor.start(assignment("stubborn"))
        await supervised.until_ready()
        pid = supervised.pid
        await supervised.supervisor.stop()
        assert not psutil.pid_exists(pid)
        assert supervised.supervisor.local.failure is None

    run(life())


def test_a_stage_that_hangs_is_killed_and_fails_with_the_reason_given(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("stubborn"))
        await supervised.until_ready()
        running = supervised.supervisor.local.running
        assert running is not None
        assert running.heard_s is not None
        pid = supervised.pid
        os.kill(pid, signal.SIGSTOP)
        await supervised.supervisor.kill("the stage hung")
        assert not psutil.pid_exists(pid)
        assert supervised.supervisor.local.running is None
        assert supervised.supervisor.local.failure is not None
        assert supervised.supervisor.local.failure.message == "the stage hung"
        await supervised.supervisor.kill("nothing to kill is no error")

    run(life())


def test_a_stage_may_be_stopped_while_it_loads(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("loads forever"))
        await supervised.supervisor.stop()
        assert supervised.supervisor.local == LocalState()
        await supervised.supervisor.stop()  # nothing to stop is no error

    run(life())


def test_noise_on_the_pipes_neither_stops_the_stage_nor_fills_the_disk(tmp_path: Path) -> None:
    async def life() -> None:
        supervised = Supervised(tmp_path)
        await supervised.supervisor.start(assignment("noisy"))
        await supervised.until_ready()
        await supervised.supervisor.stop()
        log = supervised.log.path.read_text()
        assert "left out the beginning of a line of over 1 MiB" in log
        assert "OMP_NUM_THREADS=3" in log
        assert len(log) < 2 << 20

    run(life())


def test_a_command_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    async def life() -> None:
        supervisor = Supervisor(
            settings=SETTINGS.model_copy(update={"command": (str(tmp_path / "missing"),)}),
            log=ProcessLog(tmp_path / "stage.log"),
            on_change=lambda: None,
        )
        await supervisor.start(assignment("serves"))
        assert supervisor.local.failure is not None
        assert "missing" in supervisor.local.failure.message

    run(life())


AGENT_THAT_DIES = """
import asyncio, sys
from pathlib import Path
from agent_rig import assignment
from test_supervisor import Supervised
async def life():
    supervised = Supervised(Path(sys.argv[1]))
    await supervised.supervisor.start(assignment("serves"))
    await supervised.until_ready()
    print("ready", flush=True)
    await asyncio.sleep(3600)
asyncio.run(life())
"""


def test_a_stage_does_not_outlive_an_agent_that_was_killed(tmp_path: Path) -> None:
    words = (sys.executable, "-c", AGENT_THAT_DIES, str(tmp_path))
    with started(words, stdout=PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"ready\n"
        pid = int((tmp_path / "record").read_text().split()[0])
        assert psutil.pid_exists(pid)
        agent.send_signal(signal.SIGKILL)
    wait_until(lambda: has_ended(pid), what="the stage went with its agent")


def test_the_log_keeps_to_its_bounds_and_its_last_line(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "stage.log", limit_bytes=100)
    log.begin("first")
    for number in range(50):
        log.append(f"line {number}\n".encode())
    log.append(b"  \n")
    assert log.last_line == "line 49"
    assert {path.name for path in tmp_path.iterdir()} == {"stage.log", "stage.log.1"}
    assert all(path.stat().st_size < 120 for path in tmp_path.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    log.begin("second")
    assert log.last_line == ""


def test_a_log_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ProcessLog(tmp_path / "no such directory" / "stage.log")
    for _ in range(3):
        log.append(b"still heard\n")
    assert log.last_line == "still heard"
    assert len(caplog.records) == 1
