"""One stage run by several processes, each with a share of every layer (tensor parallelism).

Rank 0 is the stage itself: it batches, samples and speaks to other stages. The others are its
children (`follower.py`): for each step they get over a pipe what changed since the last one, and
run it with their own weights and their own share of the KV cache, in lock-step by the sums inside
the layers. None can go on without the others, so the loss of one ends the stage.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

import multiprocessing
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import TypeVar

from torch import Tensor, distributed

from runtime.engine.follower import (
    Failed,
    Forward,
    HeadRows,
    Loaded,
    MakePages,
    Order,
    Present,
)
from runtime.engine.rank_process import run_rank
from runtime.engine.sequence import Work
from runtime.engine.stage_engine import Rank, RankPlace, RankTask, ReadLayers
from runtime.engine.step_changes import TableSender
from runtime.engine.step_runner import StepRunner
from runtime.models.checkpoint import Progress
from runtime.models.free_memory import free_bytes

OnLost = Callable[[str], None]
MessageT = TypeVar("MessageT")


class RankLost(RuntimeError):
    """A rank's process ended or could not load; the stage cannot go on without it."""


class LeadingRunner:
    """Runs a step on all ranks; the `ModelBackend` of a tensor-parallel stage owns one.

    Runs rank 0's part of each step, `runner`, and has the other ranks run theirs. Is used as a
    `StepRunner` is; the cache keeps its size.
    """

    def __init__(self, group: "RankGroup", runner: StepRunner) -> None:
        self._group = group
        self._runner = runner
        self.shape, self.host = runner.shape, runner.host
        self.cache = runner.cache
        self._given_out: list[int] = []  # pages, since the last step
        self.cache.kv_manager.watch(self._given_out.extend)
        self._tables = TableSender()

    @property
    def held(self) -> Collection[int]:
        return self._runner.held

    @property
    def weights_bytes(self) -> int:
        return self._runner.weights_bytes * self._group.ranks

    @property
    def kv_bytes(self) -> int:
        return self._runner.kv_bytes * self._group.ranks

    def forward(self, step: Items[Work]) -> Tensor:
        """See `StepRunner`. Raises RankLost."""
        change = self._tables.change(step)
        self._group.tell(Forward(cleared=tuple(self._given_out), change=change))
        self._given_out.clear()
        with self._group.in_step():
            return self._runner.forward(step)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """See `StepRunner`. Raises RankLost."""
        self._group.tell(HeadRows(rows=len(hidden_RD)))
        with self._group.in_step():
            distributed.broadcast(hidden_RD.contiguous(), src=0)
            return self._runner.logits(hidden_RD)


Runner = StepRunner | LeadingRunner


class RankGroup:
    """Owns the processes of the other ranks; the stage's opening makes and closes it.

    Rank 0's hold on the others. Opened whole: all ranks have their weights in memory.

    `free_bytes`: what each rank may still take of its device; on CPU they share what is free.
    """

    def __init__(
        self,
        task: RankTask,
        own: Rank[StepRunner],
        layers: ReadLayers[StepRunner],
        children: "_Children",
        *,
        free_bytes: int,
    ) -> None:
        self.free_bytes = free_bytes
        self._task = task
        self._own = own
        self._layers = layers
        self._children = children

    @classmethod
    def open(
        cls, task: RankTask, *, ranks: int, progress: Progress, on_lost: OnLost
    ) -> "RankGroup":
        """Start ranks 1 to `ranks` - 1 and load rank 0's weights meanwhile.

        `progress` is told of rank 0's. `on_lost` is called, from a thread, with what to tell when
        a rank dies from now on until `close`; rank 0 may be waiting for it in a sum then, so only
        the end of this process helps. Raises CannotRun, CheckpointError, RankLost.
        """
        children = _Children(task, ranks=ranks, on_lost=on_lost)
        own: Rank[StepRunner] | None = None
        try:
            engine = task.engine(0)
            own = engine.rank(ranks, task.layers, task.limits)
            children.await_each(Present)
            own.meet(children.place(0))
            layers = own.read(progress)
            loaded = children.await_each(Loaded)
        except BaseException:
            children.kill()
            if own is not None:
                own.leave()
            raise
        free = min(free_bytes(engine.device), *(each.free_bytes for each in loaded))
        if engine.device.type == "cpu":
            free //= ranks
        return cls(task, own, layers, children, free_bytes=free)

    @property
    def engine(self) -> str:
        return self._layers.engine

    @property
    def ranks(self) -> int:
        return self._children.ranks

    def make_runner(self, *, pages: int) -> LeadingRunner:
        """Has every rank make its share of a KV cache of `pages`. Raises RankLost."""
        self.tell(MakePages(pages=pages))
        runner = self._layers.runner(pages=pages, wire_dtype=self._task.wire_dtype)
        return LeadingRunner(self, runner)

    def tell(self, order: Order) -> None:
        """Raises RankLost."""
        pickled = ForkingPickler.dumps(order)
        for rank, pipe in enumerate(self._children.pipes, start=1):
            try:
                pipe.send_bytes(pickled)
            except OSError as error:
                raise RankLost(f"rank {rank} takes no more steps: {error}") from error

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """Around rank 0's part of what it told the others to do.

        They would wait in a sum for the part it did not do, so its failure is the stage's.
        """
        try:
            yield
        except Exception as error:
            self._children.lose(f"rank 0 failed in the middle of a step: {error}")
            raise

    def close(self) -> None:
        """End the other ranks and the group."""
        self._children.end()
        self._own.leave()


class _Children:
    """The processes of ranks 1 and up, the pipes to them, and where all ranks meet."""

    def __init__(self, task: RankTask, *, ranks: int, on_lost: OnLost) -> None:
        self.ranks = ranks
        self.meeting = tempfile.mkdtemp(prefix="ranks-")
        self.pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._on_lost = on_lost
        self._ending = threading.Event()
        spawn = multiprocessing.get_context("spawn")
        for rank in range(1, ranks):
            ours, theirs = spawn.Pipe()
            process: BaseProcess = spawn.Process(
                target=run_rank, args=(task, self.place(rank), theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self.pipes.append(ours)
        threading.Thread(target=self._watch, name="rank watch", daemon=True).start()

    def place(self, rank: int) -> RankPlace:
        return RankPlace(rank=rank, ranks=self.ranks, meeting=self.meeting)

    def await_each(self, kind: type[MessageT]) -> list[MessageT]:
        """One message of `kind` from each. Raises RankLost for any other, or none."""
        messages = []
        for rank, pipe in enumerate(self.pipes, start=1):
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                raise RankLost(
                    f"rank {rank} ended while it was loading; the stage's log says more"
                ) from None
            if isinstance(message, Failed):
                raise RankLost(f"rank {rank}: {message.message}")
            if not isinstance(message, kind):
                raise RankLost(f"rank {rank} sent {message!r} where a {kind.__name__} was expected")
            messages.append(message)
        return messages

    def lose(self, message: str) -> None:
        """The group is of no more use; told once, and not while it ends."""
        if not self._ending.is_set():
            self._ending.set()
            self._on_lost(message)

    def kill(self) -> None:
        """End them at once, wherever they are."""
        self._ending.set()
        for process in self._processes:
            process.kill()
        self._clear_up()

    def end(self) -> None:
        """Let them end, and kill what has not after ten seconds."""
        self._ending.set()
        for pipe in self.pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=10)
            process.kill()
        self._clear_up()

    def _clear_up(self) -> None:
        for process in self._processes:
            process.join()
        shutil.rmtree(self.meeting, ignore_errors=True)

    def _watch(self) -> None:
        gone = wait([process.sentinel for process in self._processes])
        ended = []
        for rank, process in enumerate(self._processes, start=1):
            if process.sentinel in gone:
                process.join()  # its sentinel may be a moment ahead of its status
                ended.append(f"rank {rank} ended with status {process.exitcode}")
        self.lose(f"{', '.join(ended)}; the stage cannot go on without it")
