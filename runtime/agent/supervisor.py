"""Starts, watches and ends the stage process; knows nothing of helixweb.

What it sees goes into `local`, the state `reconcile` decides on; `on_change` is called after each
change. The child leads its own session, so a Ctrl-C for the agent does not reach it, and it ends by
itself when its stdin closes: it cannot outlive the agent.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from runtime.agent.reconcile import LocalState, RunningStage, after_event, after_failure
from runtime.process_log import ProcessLog
from runtime.protocol.control import StageAssignment
from runtime.protocol.engines import EngineSettings
from runtime.protocol.phases import Phase
from runtime.protocol.stage_pipe import (
    AddOrder,
    Computing,
    FailedEvent,
    StageBase,
    StageLaunch,
    parse_event,
)
from runtime.tasks import unless, within

logger = logging.getLogger(__name__)

STAGE_COMMAND = (sys.executable, "-m", "runtime", "stage")
PROFILE_COMMAND = (sys.executable, "-m", "runtime", "profile-node")
_STOP_PATIENCE_S = 10.0
_LINE_LIMIT_BYTES = 1 << 20


class StageSettings(StageBase):
    """What stages of this agent have in common.

    `tensor_parallel`: the machine's own degree, which overrules a deployment's. `command` starts a
    stage, `profile_command` the process that measures what one could do here.
    `gpu_budgets_bytes` are what a rank may use of each GPU, in their order; empty where one number
    is for the whole stage: without GPUs, or because a person gave it.
    """

    tensor_parallel: int | None = None
    gpu_budgets_bytes: tuple[int, ...] = ()
    command: tuple[str, ...] = STAGE_COMMAND
    profile_command: tuple[str, ...] = PROFILE_COMMAND

    def budget_bytes(self, *, ranks: int) -> int:
        """For all ranks of a stage; each gets an equal part.

        Ranks hold the same, each on a GPU of its own, so that the smallest of these counts.
        """
        if not self.gpu_budgets_bytes:
            return self.memory_budget_bytes
        return ranks * min(self.gpu_budgets_bytes[:ranks])

    def of_launch(self, kind: type[Computing], *, ranks: int) -> dict[str, Any]:
        """The fields of a launch of that `kind` which are the agent's to say."""
        shared = {name: getattr(self, name) for name in kind.model_fields if hasattr(self, name)}
        return {**shared, "memory_budget_bytes": self.budget_bytes(ranks=ranks)}

    async def start_child(self, command: Sequence[str], *, stderr: int = PIPE) -> Process:
        """In a session of its own, with pipes. Raises OSError."""
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": str(self.threads)},
            start_new_session=True,
            limit=_LINE_LIMIT_BYTES,
        )


class Supervisor:
    """Owns the stage process of one node; the agent and the whole-model server call it.

    At most one stage process at a time. `start`, `add` and `stop` are called from one task.
    """

    def __init__(
        self,
        *,
        settings: StageSettings,
        log: ProcessLog,
        on_change: Callable[[], None],
        stop_patience_s: float = _STOP_PATIENCE_S,
    ) -> None:
        self.local = LocalState()
        self._settings = settings
        self._log = log
        self._on_change = on_change
        self._stop_patience_s = stop_patience_s
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._failed_message = ""
        self._told: dict[int, StageAssignment] = {}  # to the process that runs, by generation

    def use_engine(self, engine: EngineSettings) -> None:
        """For stages that are started from now on."""
        self._settings = self._settings.model_copy(update={"engine": engine})

    async def start(self, assignment: StageAssignment) -> None:
        """Start a stage; what becomes of it shows in `local`. None may be running."""
        self._failed_message = ""
        self._told = {assignment.generation: assignment}
        self._log.begin(
            f"generation {assignment.generation}: layers [{assignment.first}, {assignment.end}) "
            f"of {assignment.model_name}"
        )
        running = RunningStage(assignment=assignment, phase=Phase.LOADING, loaded_ratio=0.0)
        self._set(replace(self.local, running=running))
        try:
            process = await self._settings.start_child(self._settings.command)
        except OSError as error:
            self._fail(f"cannot start {self._settings.command[0]}: {error}")
            return
        logger.info(
            "started stage %d: layers [%d, %d)", process.pid, assignment.first, assignment.end
        )
        self._process = process
        self._watching = asyncio.create_task(self._watch(process, assignment))

    async def add(self, assignment: StageAssignment) -> None:
        """Have the stage that runs serve this beside what it serves; what becomes of it shows in
        `local`."""
        process, running = self._process, self.local.running
        if process is None or running is None:
            return  # it ended a moment ago, which shows in `local` too
        logger.info(
            "adding generation %d: layers [%d, %d)",
            assignment.generation,
            assignment.first,
            assignment.end,
        )
        self._told[assignment.generation] = assignment
        self._set(
            replace(
                self.local,
                running=replace(
                    running,
                    assignment=assignment,
                    phase=Phase.LOADING,
                    beside=running.serving,
                    loaded_ratio=0.0,
                ),
            )
        )
        await write_line(process, AddOrder(assignment=assignment).to_line())

    async def leave(self, *, hurry: asyncio.Event) -> None:
        """Have the stage end once its requests go on elsewhere; returns when it has ended, should
        have by now, or at `hurry`. `stop` is still to be called."""
        process, watching, running = self._process, self._watching, self.local.running
        if process is None or watching is None or running is None:
            return
        logger.info("stage %d leaves within %g s", process.pid, self._settings.leave_within_s)
        self._set(replace(self.local, running=replace(running, phase=Phase.STOPPING)))
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await within(self._settings.leave_within_s, unless(hurry, asyncio.wait({watching})))

    async def stop(self) -> None:
        """End the stage and wait until it has gone: first asked, at last killed."""
        process, watching = self._process, self._watching
        if process is None or watching is None:
            return
        if self.local.running is not None:
            self._set(
                replace(self.local, running=replace(self.local.running, phase=Phase.STOPPING))
            )
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._stop_patience_s):
                await asyncio.shield(watching)
        except TimeoutError:
            logger.warning("stage %d does not stop; killing it", process.pid)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await watching
        self._process = self._watching = None
        self._set(LocalState())

    async def kill(self, message: str) -> None:
        """End a stage that hangs and wait until it has gone; `message` is why it failed."""
        process, watching = self._process, self._watching
        if process is None or watching is None:
            return
        self._failed_message = message
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({watching})

    async def _watch(self, process: Process, assignment: StageAssignment) -> None:
        """Until the process has gone."""
        async with asyncio.TaskGroup() as readers:
            readers.create_task(self._read_events(process))
            readers.create_task(self._read_log(process))
            readers.create_task(self._launch(process, assignment))
        code = await process.wait()
        running = self.local.running
        if running is None or running.phase is Phase.STOPPING:
            return
        self._process = self._watching = None
        self._fail(self._failed_message or self._how_it_ended(code))

    async def _launch(self, process: Process, assignment: StageAssignment) -> None:
        settings = self._settings
        if settings.tensor_parallel is not None:
            degree = {"tensor_parallel": settings.tensor_parallel}
            assignment = assignment.model_copy(update=degree)
        fields = settings.of_launch(StageLaunch, ranks=assignment.tensor_parallel)
        await write_line(process, StageLaunch(assignment=assignment, **fields).to_line())

    async def _read_events(self, process: Process) -> None:
        async for line in _lines(process.stdout):
            try:
                event = parse_event(line)
            except ValidationError:
                logger.warning("the stage wrote on stdout what is no event: %r", line[:200])
                continue
            if isinstance(event, FailedEvent):
                self._failed_message = event.message
            else:
                now_s = time.monotonic()
                self._set(after_event(self.local, event, told=self._told, now_s=now_s))

    async def _read_log(self, process: Process) -> None:
        async for line in _lines(process.stderr):
            self._log.append(line)

    def _how_it_ended(self, code: int) -> str:
        how = f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
        said = f": {self._log.last_line}" if self._log.last_line else ""
        return f"the stage {how}{said} (log: {self._log.path})"

    def _fail(self, message: str) -> None:
        logger.error("stage failed: %s", message)
        self._set(after_failure(self.local, message=message, now_s=time.monotonic()))

    def _set(self, local: LocalState) -> None:
        self.local = local
        self._on_change()


async def write_line(process: Process, line: bytes) -> None:
    """To the stdin of a child; if it is dying, its exit says why."""
    if process.stdin is None:
        raise RuntimeError("a child was started without a pipe to its stdin")
    with contextlib.suppress(ConnectionError):
        process.stdin.write(line)
        await process.stdin.drain()


async def _lines(stream: asyncio.StreamReader | None) -> AsyncGenerator[bytes]:
    if stream is None:
        raise RuntimeError("the stage was started without pipes")
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            line = b"(left out the beginning of a line of over 1 MiB)\n"
        if not line:
            return
        yield line
