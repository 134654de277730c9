"""One stage run by several processes, each with a share of every layer (tensor parallelism).

Rank 0 is the stage itself: it batches, samples and speaks to other stages. The others are its
children (`follower.py`): for each step they are told over a pipe which rows and pages it has, and
run it with their own weights and their own share of the KV cache, in lock-step by the sums inside
the layers. None can go on without the others, so the loss of one ends the stage.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

import multiprocessing
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

import torch
from torch import Tensor, distributed

from runtime.engine.follower import (
    Failed,
    Forward,
    HeadRows,
    Loaded,
    MakePages,
    Present,
    RankWork,
    StageShare,
    follow,
    load_share,
    meet,
)
from runtime.engine.kv_cache import KvCache
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Work
from runtime.models.checkpoint import Progress
from runtime.models.decoder import Decoder
from runtime.models.free_memory import free_bytes
from runtime.models.model_config import ModelConfig

OnLost = Callable[[str], None]
MessageT = TypeVar("MessageT")


class RankLost(RuntimeError):
    """A rank's process ended or could not load; the stage cannot go on without it."""


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

    @property
    def weights_bytes(self) -> int:
        return super().weights_bytes * self._group.ranks

    @property
    def kv_bytes(self) -> int:
        return super().kv_bytes * self._group.ranks

    def forward(self, step: Items[Work]) -> Tensor:
        """See `ModelRunner`. Raises RankLost."""
        self._group.tell(
            Forward(
                cleared=self._leading.take_cleared(),
                works=tuple(RankWork.of(work) for work in step),
            )
        )
        with self._group.in_step():
            return super().forward(step)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """See `ModelRunner`. Raises RankLost."""
        self._group.tell(HeadRows(rows=len(hidden_RD)))
        with self._group.in_step():
            distributed.broadcast(hidden_RD.contiguous(), src=0)
            return super().logits(hidden_RD)


class RankGroup:
    """Rank 0's hold on the others. Opened whole: all ranks have their weights in memory.

    `free_bytes`: what each rank may still take of its device; on CPU they share what is free.
    """

    def __init__(
        self,
        share: StageShare,
        decoder: Decoder,
        children: "_Children",
        *,
        free_bytes: int,
    ) -> None:
        self.decoder = decoder
        self.free_bytes = free_bytes
        self._share = share
        self._children = children

    @classmethod
    def open(
        cls, share: StageShare, *, ranks: int, progress: Progress, on_lost: OnLost
    ) -> "RankGroup":
        """Start ranks 1 to `ranks` - 1 and load rank 0's weights meanwhile.

        `progress` is told of rank 0's. `on_lost` is called, from a thread, with what to tell when
        a rank dies from now on until `close`; rank 0 may be waiting for it in a sum then, so only
        the end of this process helps. Raises CheckpointError, RankLost.
        """
        children = _Children(share, ranks=ranks, on_lost=on_lost)
        try:
            children.await_each(Present)
            mine = meet(share, rank=0, ranks=ranks, meeting=children.meeting)
            decoder = load_share(share, mine, progress=progress)
            loaded = children.await_each(Loaded)
        except BaseException:
            children.kill()
            raise
        free = min(free_bytes(decoder.device), *(each.free_bytes for each in loaded))
        if decoder.device.type == "cpu":
            free //= ranks
        return cls(share, decoder, children, free_bytes=free)

    @property
    def ranks(self) -> int:
        return len(self._children.pipes) + 1

    def make_runner(self, *, pages: int) -> LeadingRunner:
        """Has every rank make its share of a KV cache of `pages`. Raises RankLost."""
        self.tell(MakePages(pages=pages))
        cache = LeadingCache(
            self.decoder.config,
            pages=pages,
            page_tokens=self._share.page_tokens,
            device=self.decoder.device,
        )
        return LeadingRunner(self, cache, max_context_tokens=self._share.max_context_tokens)

    def tell(self, message: MakePages | Forward | HeadRows) -> None:
        """Raises RankLost."""
        for rank, pipe in enumerate(self._children.pipes, start=1):
            try:
                pipe.send(message)
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


class _Children:
    """The processes of ranks 1 and up, the pipes to them, and where all ranks meet."""

    def __init__(self, share: StageShare, *, ranks: int, on_lost: OnLost) -> None:
        self.meeting = tempfile.mkdtemp(prefix="ranks-")
        self.pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._on_lost = on_lost
        self._ending = threading.Event()
        spawn = multiprocessing.get_context("spawn")
        for rank in range(1, ranks):
            ours, theirs = spawn.Pipe()
            process: BaseProcess = spawn.Process(
                target=follow, args=(share, rank, ranks, self.meeting, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self.pipes.append(ours)
        threading.Thread(target=self._watch, name="rank watch", daemon=True).start()

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
        if distributed.is_initialized():
            distributed.destroy_process_group()
        shutil.rmtree(self.meeting, ignore_errors=True)

    def _watch(self) -> None:
        gone = wait([process.sentinel for process in self._processes])
        ended = []
        for rank, process in enumerate(self._processes, start=1):
            if process.sentinel in gone:
                process.join()  # its sentinel may be a moment ahead of its status
                ended.append(f"rank {rank} ended with status {process.exitcode}")
        self.lose(f"{', '.join(ended)}; the stage cannot go on without it")
