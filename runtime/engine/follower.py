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
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from runtime.engine.heap import keep_freed_memory
from runtime.engine.kv_cache import KvCache
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.checkpoint import CheckpointError, Progress
from runtime.models.config import read_config
from runtime.models.decoder import Decoder
from runtime.models.free_memory import free_bytes
from runtime.models.ranks import ProcessRanks
from runtime.models.weights import load_decoder
from runtime.protocol.routes import Hop, Route, Sampling
from runtime.thread_failure import exit_when_a_thread_fails

# to find each other once all are there, and for the slowest rank of a sum
_PATIENCE = timedelta(minutes=2)
_UNSAMPLED = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """What each rank needs to take its part: layers [first, end) of a checkpoint, and CPU
    threads. `device_type` "cuda" gives rank r the GPU of that number."""

    checkpoint: Path
    first: int
    end: int
    page_tokens: int
    max_context_tokens: int
    threads: int
    device_type: str

    def device(self, rank: int) -> torch.device:
        return torch.device(f"cuda:{rank}" if self.device_type == "cuda" else self.device_type)


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
class RankWork:
    """A `Work` as the other ranks need it."""

    first: int
    end: int
    position: int
    n_tokens: int
    payload: bytes
    pages_LB: NDArray[np.int64]

    @classmethod
    def of(cls, work: Work) -> "RankWork":
        return cls(
            first=work.sequence.first,
            end=work.sequence.end,
            position=work.chunk.position,
            n_tokens=work.chunk.n_tokens,
            payload=bytes(work.chunk.payload),
            pages_LB=work.sequence.table.pages_LB,
        )

    def work(self) -> Work:
        hop = Hop(node="rank", first=self.first, end=self.end)
        sequence = Sequence(
            key=RequestKey(request=0, epoch=0),
            generation=1,
            route=Route(hops=(hop,), sampling=_UNSAMPLED, prompt_tokens=1),
            hop=0,
            arrival=0,
        )
        sequence.table.append(self.pages_LB.ravel().tolist())
        chunk = Chunk(
            position=self.position,
            n_tokens=self.n_tokens,
            payload=memoryview(self.payload),
            is_sampled=False,
            arrival=0,
        )
        return Work(sequence=sequence, chunk=chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Run this step, after clearing pages that were given out anew."""

    cleared: tuple[int, ...]
    works: tuple[RankWork, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRows:
    """Multiply the head with as many rows, which rank 0 broadcasts."""

    rows: int


def follow(share: StageShare, rank: int, ranks: int, meeting: str, pipe: Connection) -> None:
    """The life of rank `rank`, a process of its own."""
    exit_when_a_thread_fails()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is the stage's, for its events
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    pipe.send(Present())
    try:
        mine = meet(share, rank=rank, ranks=ranks, meeting=meeting)
        decoder = load_share(share, mine, progress=lambda _done, _total: None)
    except (CheckpointError, OSError, RuntimeError) as error:
        pipe.send(Failed(message=str(error)))
        _await_end(pipe)
        return
    pipe.send(Loaded(free_bytes=free_bytes(decoder.device)))
    try:
        told = pipe.recv()
        cache = KvCache(
            decoder.config, pages=told.pages, page_tokens=share.page_tokens, device=decoder.device
        )
        runner = ModelRunner(decoder, cache, max_context_tokens=share.max_context_tokens)
        while True:
            _take_part(pipe.recv(), runner, cache)
    except EOFError:
        distributed.destroy_process_group()


def meet(share: StageShare, *, rank: int, ranks: int, meeting: str) -> ProcessRanks:
    """Join the group of all ranks through a file in the folder `meeting`.

    Raises RuntimeError when they do not all come within two minutes.
    """
    torch.set_num_threads(share.threads)
    device = share.device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{meeting}/group",
        rank=rank,
        world_size=ranks,
        timeout=_PATIENCE,
    )
    group = distributed.group.WORLD
    if group is None:
        raise RuntimeError(f"rank {rank} of {ranks} found no process group")
    return ProcessRanks.of(group)


def load_share(share: StageShare, mine: ProcessRanks, *, progress: Progress) -> Decoder:
    """This rank's pieces of the layers. Raises CheckpointError."""
    return load_decoder(
        share.checkpoint,
        read_config(share.checkpoint),
        first=share.first,
        end=share.end,
        device=share.device(mine.shard.rank),
        progress=progress,
        ranks=mine,
    )


def _take_part(message: Forward | HeadRows, runner: ModelRunner, cache: KvCache) -> None:
    if isinstance(message, HeadRows):
        config = runner.decoder.config
        hidden_RD = torch.empty(
            message.rows, config.hidden_size, dtype=config.dtype, device=runner.decoder.device
        )
        distributed.broadcast(hidden_RD, src=0)
        runner.logits(hidden_RD)
    else:
        cache.clear(list(message.cleared))
        runner.forward([each.work() for each in message.works])


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
