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
from multiprocessing.connection import Connection, wait

import torch
from torch import distributed

from runtime.checkpoints.errors import CheckpointError
from runtime.engine.backend import CannotRun
from runtime.engine.stage_engine import RankPlace, RankTask, no_progress
from runtime.engine.step_changes import StepChange, TableCopies
from runtime.engine.step_runner import StepRunner
from runtime.free_memory import keep_freed_memory
from runtime.models.free_memory import free_bytes
from runtime.thread_failure import exit_when_a_thread_fails


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
class Forward:
    """Run this step, after clearing pages that were given out again."""

    cleared: tuple[int, ...]
    change: StepChange


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRows:
    """Multiply the head with as many rows, which rank 0 broadcasts."""

    rows: int


Order = MakePages | Forward | HeadRows


def follow(task: RankTask, place: RankPlace, pipe: Connection) -> None:
    """The life of the rank at `place`, a process of its own."""
    exit_when_a_thread_fails()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is the stage's, for its events
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    try:
        engine = task.engine(place.rank)
        rank = engine.rank(place.ranks, task.layers, task.limits)
        pipe.send(Present())
        rank.meet(place)
        layers = rank.read(no_progress)
    except (CannotRun, CheckpointError, OSError, RuntimeError, MemoryError) as error:
        pipe.send(Failed(message=str(error)))
        _await_end(pipe)
        return
    pipe.send(Loaded(free_bytes=free_bytes(engine.device)))
    try:
        runner = layers.runner(pages=pipe.recv().pages, wire_dtype=task.wire_dtype)
        copies = TableCopies()
        while True:
            take_part(pipe.recv(), runner, copies)
    except EOFError:
        rank.leave()


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
