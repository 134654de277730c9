"""One stage run by several processes, each with a share of every layer (tensor parallelism).

Rank 0 is the stage itself: it batches, samples and speaks to other stages. The others are its
children: for each step they are told over a pipe which rows and pages it has, and run it with
their own weights and their own share of the KV cache, in lock-step by the sums inside the layers.
They end when rank 0 ends, however it ends.

Legend: T rows of the step, R some of them, D hidden, V vocabulary, L layers, B blocks.
"""

import multiprocessing
import shutil
import tempfile
import threading
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from runtime.engine.kv_cache import KvCache
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.checkpoint import CheckpointError
from runtime.models.config import ModelConfig, read_config
from runtime.models.decoder import Decoder
from runtime.models.ranks import ProcessRanks
from runtime.models.weights import Progress, load_decoder
from runtime.protocol.data import Hop, Route, Sampling

_MEETING_TIMEOUT = timedelta(minutes=10)  # a large checkpoint is read meanwhile
_UNSAMPLED = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


class RankLost(RuntimeError):
    """A rank's process ended or could not load; the stage cannot go on without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """What each rank needs to take its part: layers [first, end) of a checkpoint, pages of the
    KV cache, and CPU threads."""

    checkpoint: Path
    first: int
    end: int
    pages: int
    page_tokens: int
    max_context_tokens: int
    threads: int
    device_type: str

    def device(self, rank: int) -> torch.device:
        return torch.device(f"cuda:{rank}" if self.device_type == "cuda" else self.device_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankWork:
    """A `Work` as the other ranks need it."""

    first: int
    end: int
    position: int
    n_tokens: int
    payload: bytes
    pages_LB: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """Run this step, after clearing pages that were given out anew."""

    cleared: tuple[int, ...]
    works: tuple[_RankWork, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logits:
    """Multiply the head with as many rows, which rank 0 broadcasts."""

    rows: int


class LeadingCache(KvCache):
    """Rank 0's share of the KV cache; notes which pages the others have to clear as well."""

    def __init__(
        self, config: ModelConfig, *, pages: int, page_tokens: int, device: torch.device
    ) -> None:
        self._cleared: list[int] = []
        super().__init__(config, pages=pages, page_tokens=page_tokens, device=device)

    def take_cleared(self) -> tuple[int, ...]:
        """Pages cleared since the last call."""
        cleared, self._cleared = tuple(self._cleared), []
        return cleared

    def clear(self, pages: list[int]) -> None:
        super().clear(pages)
        self._cleared += pages


class LeadingRunner(ModelRunner):
    """Runs rank 0's part of each step and has the other ranks run theirs."""

    def __init__(self, group: "RankGroup", cache: LeadingCache, *, max_context_tokens: int) -> None:
        super().__init__(group.decoder, cache, max_context_tokens=max_context_tokens)
        self._group = group
        self._leading = cache

    def forward(self, step: Items[Work]) -> Tensor:
        self._group.tell(
            _Forward(
                cleared=self._leading.take_cleared(), works=tuple(_rank_work(work) for work in step)
            )
        )
        return super().forward(step)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        self._group.tell(_Logits(rows=len(hidden_RD)))
        distributed.broadcast(hidden_RD.contiguous(), src=0)
        return super().logits(hidden_RD)


class RankGroup:
    """Rank 0's hold on the others. Opened whole: all ranks have their weights in memory."""

    def __init__(
        self,
        decoder: Decoder,
        processes: list[BaseProcess],
        pipes: list[Connection],
        *,
        meeting: str,
    ) -> None:
        self.decoder = decoder
        self._meeting = meeting
        self._processes = processes
        self._pipes = pipes
        self._closing = threading.Event()

    @classmethod
    def open(cls, share: StageShare, *, ranks: int, progress: Progress) -> "RankGroup":
        """Start ranks 1 to `ranks` - 1 and load rank 0's weights meanwhile.

        `progress` is told of rank 0's. Raises CheckpointError, RankLost.
        """
        spawn = multiprocessing.get_context("spawn")
        meeting = tempfile.mkdtemp(prefix="ranks-")
        processes: list[BaseProcess] = []
        pipes: list[Connection] = []
        for rank in range(1, ranks):
            ours, theirs = spawn.Pipe()
            process: BaseProcess = spawn.Process(
                target=follow, args=(share, rank, ranks, meeting, theirs), daemon=True
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        try:
            mine = _meet(share, rank=0, ranks=ranks, meeting=meeting)
            decoder = _load(share, mine, progress=progress)
            for rank, pipe in enumerate(pipes, start=1):
                _await_loaded(pipe, rank)
        except BaseException:
            for process in processes:
                process.kill()
            if distributed.is_initialized():
                distributed.destroy_process_group()
            shutil.rmtree(meeting, ignore_errors=True)
            raise
        return cls(decoder, processes, pipes, meeting=meeting)

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Call `on_lost` with a message, from a thread, if a rank ends before `close`."""
        threading.Thread(target=self._watch, args=(on_lost,), daemon=True).start()

    def tell(self, message: _Forward | _Logits) -> None:
        """Raises RankLost."""
        for rank, pipe in enumerate(self._pipes, start=1):
            try:
                pipe.send(message)
            except OSError as error:
                raise RankLost(f"rank {rank} takes no more steps: {error}") from error

    def close(self) -> None:
        """End the other ranks and the group."""
        self._closing.set()
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        distributed.destroy_process_group()
        shutil.rmtree(self._meeting, ignore_errors=True)

    def _watch(self, on_lost: Callable[[str], None]) -> None:
        wait([process.sentinel for process in self._processes])
        if not self._closing.is_set():
            ended = [
                f"rank {rank} ended with status {process.exitcode}"
                for rank, process in enumerate(self._processes, start=1)
                if process.exitcode is not None
            ]
            on_lost(f"{', '.join(ended)}; the stage cannot go on without it")


def follow(share: StageShare, rank: int, ranks: int, meeting: str, pipe: Connection) -> None:
    """The life of a rank other than 0: load, then run each step it is told of until the pipe ends.

    What keeps it from loading is sent to rank 0.
    """
    try:
        mine = _meet(share, rank=rank, ranks=ranks, meeting=meeting)
        decoder = _load(share, mine, progress=lambda _done, _total: None)
    except (CheckpointError, OSError, RuntimeError) as error:
        pipe.send(str(error))
        return
    cache = KvCache(
        decoder.config,
        pages=share.pages,
        page_tokens=share.page_tokens,
        device=decoder.device,
    )
    runner = ModelRunner(decoder, cache, max_context_tokens=share.max_context_tokens)
    pipe.send(None)
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            break
        if isinstance(message, _Logits):
            config = decoder.config
            hidden_RD = torch.empty(
                message.rows, config.hidden_size, dtype=config.dtype, device=decoder.device
            )
            distributed.broadcast(hidden_RD, src=0)
            runner.logits(hidden_RD)
        else:
            cache.clear(list(message.cleared))
            runner.forward([_work(each) for each in message.works])
    distributed.destroy_process_group()


def _meet(share: StageShare, *, rank: int, ranks: int, meeting: str) -> ProcessRanks:
    torch.set_num_threads(share.threads)
    device = share.device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{meeting}/group",
        rank=rank,
        world_size=ranks,
        timeout=_MEETING_TIMEOUT,
    )
    group = distributed.group.WORLD
    if group is None:
        raise RankLost(f"rank {rank} of {ranks} found no process group")
    return ProcessRanks.of(group)


def _load(share: StageShare, mine: ProcessRanks, *, progress: Progress) -> Decoder:
    return load_decoder(
        share.checkpoint,
        read_config(share.checkpoint),
        first=share.first,
        end=share.end,
        device=share.device(mine.shard.rank),
        progress=progress,
        ranks=mine,
    )


def _await_loaded(pipe: Connection, rank: int) -> None:
    try:
        problem = pipe.recv()
    except EOFError:
        raise RankLost(f"rank {rank} ended while it was loading; its log says more") from None
    if problem is not None:
        raise RankLost(f"rank {rank}: {problem}")


def _rank_work(work: Work) -> _RankWork:
    return _RankWork(
        first=work.sequence.first,
        end=work.sequence.end,
        position=work.chunk.position,
        n_tokens=work.chunk.n_tokens,
        payload=bytes(work.chunk.payload),
        pages_LB=work.sequence.table.pages_LB,
    )


def _work(told: _RankWork) -> Work:
    hop = Hop(node="rank", first=told.first, end=told.end)
    sequence = Sequence(
        key=RequestKey(request=0, epoch=0),
        route=Route(hops=(hop,), sampling=_UNSAMPLED, prompt_tokens=1),
        hop=0,
        arrival=0,
    )
    sequence.table.append(told.pages_LB.ravel().tolist())
    chunk = Chunk(
        position=told.position,
        n_tokens=told.n_tokens,
        payload=memoryview(told.payload),
        is_sampled=False,
        arrival=0,
    )
    return Work(sequence=sequence, chunk=chunk)
