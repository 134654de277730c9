"""A rank other than 0: loads its share of a stage's layers and runs each step it is told of.

Rank 0 speaks to it over a pipe, in this order: the rank says that it is there, meets the others,
loads, and says how much memory is left; is told how many pages to make; then steps, until the pipe
ends. What keeps it from loading goes over the pipe as text, and it waits to be ended, so a rank
that ends by itself has always died.
"""

import multiprocessing
import os
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Protocol

import torch
from torch import distributed

from runtime.checkpoints.errors import CheckpointError
from runtime.engine.backend import CannotRun
from runtime.engine.heap import keep_freed_memory
from runtime.engine.pages import PageMoves
from runtime.engine.step_changes import StepChange, TableCopies
from runtime.engine.step_runner import StepRunner
from runtime.models.checkpoint import Progress
from runtime.models.free_memory import free_bytes
from runtime.thread_failure import exit_when_a_thread_fails

# to find each other once all are there, and for the slowest rank of a sum
PATIENCE = timedelta(minutes=2)


class RankPart(Protocol):
    """What a rank does in its own process, in this order."""

    def meet(self) -> None:
        """Join the group of all ranks. Raises RuntimeError if one does not come in time."""

    def load(self, progress: Progress) -> None:
        """Read its share of the layers. Raises CannotRun, CheckpointError, OSError."""

    @property
    def device(self) -> torch.device: ...

    @property
    def engine(self) -> str:
        """What computes its share, in words for people."""

    def runner(self, *, pages: int) -> StepRunner:
        """Runs its share of the layers, with as many pages of KV cache."""

    def leave(self) -> None:
        """Leave the group, if it ever joined it."""


class RankShare(Protocol):
    """What each rank needs to know to take its part. It is sent to the ranks' processes."""

    def part(self, *, rank: int, ranks: int, meeting: str) -> RankPart:
        """What can be done before the ranks meet in the folder `meeting`, such as a check of what
        they are to load. Raises CannotRun."""


def take_device(device_type: str, rank: int) -> torch.device:
    """Make the device of a rank the current one: the GPU of its number, of those it may see."""
    if device_type != "cuda":
        return torch.device(device_type)
    device = torch.device(f"cuda:{rank}")
    torch.cuda.set_device(device)
    return device


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The rank's process has started; now it waits to meet the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The weights are in memory, and this much of its device is free beside them."""

    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The rank cannot load; the message says why."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePages:
    """Make a KV cache of as many pages."""

    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Have as many pages of KV cache, after clearing those that were given out again."""

    cleared: tuple[int, ...]
    pages: int
    moves: PageMoves


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Run this step, after clearing pages that were given out again."""

    cleared: tuple[int, ...]
    change: StepChange


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRows:
    """Multiply the head with as many rows, which rank 0 broadcasts."""

    rows: int


Order = MakePages | Resize | Forward | HeadRows


def follow(share: RankShare, rank: int, ranks: int, meeting: str, pipe: Connection) -> None:
    """The life of rank `rank`, a process of its own."""
    exit_when_a_thread_fails()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is the stage's, for its events
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    try:
        part = share.part(rank=rank, ranks=ranks, meeting=meeting)
        pipe.send(Present())
        part.meet()
        part.load(lambda _done, _total: None)
    except (CannotRun, CheckpointError, OSError, RuntimeError, MemoryError) as error:
        pipe.send(Failed(message=str(error)))
        _await_end(pipe)
        return
    pipe.send(Loaded(free_bytes=free_bytes(part.device)))
    try:
        runner = part.runner(pages=pipe.recv().pages)
        copies = TableCopies()
        while True:
            take_part(pipe.recv(), runner, copies)
    except EOFError:
        part.leave()


def take_part(order: Order, runner: StepRunner, copies: TableCopies) -> None:
    """Do what rank 0 does."""
    match order:
        case HeadRows():
            shape = runner.shape
            hidden_RD = torch.empty(
                order.rows, shape.hidden_size, dtype=shape.dtype, device=runner.device
            )
            distributed.broadcast(hidden_RD, src=0)
            runner.logits(hidden_RD)
        case Forward():
            runner.cache.clear(list(order.cleared))
            runner.forward(copies.works(order.change))
        case Resize():
            runner.cache.clear(list(order.cleared))
            runner.cache.move(order.pages, order.moves)


def _await_end(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        return


def _end_with_parent() -> None:
    """A sum that waits for a stage that was killed would wait for long."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
