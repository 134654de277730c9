"""Decode steps of a vLLM stage as graphs: recorded once, then started by one call.

A graph repeats kernels with the addresses they were recorded with, so all that changes from step to
step lies in buffers that stay. One is recorded for the stage's whole range of layers and each of a
few numbers of requests; steps with fewer are padded. The embedding before them has graphs of its
own. What follows the layers is started one by one, while the device still runs them.

Legend: R requests, one row each, S the size that they are padded to, W pages of the longest
context, L layers, D hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from runtime.engine import vllm_attention as attention
from runtime.engine import vllm_compat as compat

# Runs a function once, and returns what repeats the kernels it started: into the same tensor.
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]

# For a batch, pages [L, R, W] of each layer and request, and slots [L, R] that their rows are
# written to: runs rows [R, D] at positions [R] through all layers; and renews, before each step,
# what builders of attention metadata keep in buffers of their own, such as FlashAttention 3's plan.
Prepare = Callable[
    [attention.RaggedBatch, Tensor, Tensor],
    tuple[Callable[[Tensor, Tensor], Tensor], Callable[[], None]],
]

_NO_SLOT = -1


def graph_sizes(most: int) -> tuple[int, ...]:
    """Numbers of requests that graphs are recorded for; `most` at most."""
    return tuple(size for size in (1, 2, 4, *range(8, 257, 8)) if size <= most)


def cuda_recorder(device: torch.device) -> Record:
    """Records CUDA graphs, which share one pool of memory."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            run()  # kernels are compiled and libraries opened, which no graph may contain
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            left_SD = run()

        def replay() -> Tensor:
            graph.replay()
            return left_SD

        return replay

    return record


class RowGraphs:
    """Graphs of `run`, which takes and gives rows that do not depend on one another.

    `row`: one that it takes, [1, ...]; `sizes`: numbers of rows, in rising order.
    """

    def __init__(
        self,
        run: Callable[[Tensor], Tensor],
        *,
        row: Tensor,
        sizes: tuple[int, ...],
        record: Record,
    ) -> None:
        self._run, self._record, self._sizes = run, record, sizes
        self._rows_S = row.new_zeros(sizes[-1], *row.shape[1:])
        self._replays: dict[int, Callable[[], Tensor]] = {}

    def __call__(self, rows_R: Tensor) -> Tensor:
        """What `run` gives for these rows; it stays until the next call."""
        count = len(rows_R)
        if count > self._sizes[-1]:
            return self._run(rows_R)
        size = _padded(count, self._sizes)
        if size not in self._replays:
            entering_S = self._rows_S[:size]
            self._replays[size] = self._record(lambda: self._run(entering_S))
        self._rows_S[:count] = rows_R
        return self._replays[size]()[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """The graph of one size, and what renews the metadata that it reads."""

    replay: Callable[[], Tensor]
    renew: Callable[[], None]


class DecodeGraphs:
    """Owns the recorded CUDA graphs of decode steps; a `VllmModel` plays them.

    Graphs of steps in which each request has one row, through all of `n_layers` layers, which
    `prepare` runs.

    `row`: one that they take, [1, D]; `sizes` are in rising order; `width`: pages of a request of
    `max_context_tokens`.
    """

    def __init__(
        self,
        prepare: Prepare,
        *,
        n_layers: int,
        row: Tensor,
        sizes: tuple[int, ...],
        max_context_tokens: int,
        width: int,
        record: Record,
    ) -> None:
        most, device = sizes[-1], row.device
        self._prepare, self._record = prepare, record
        self._sizes = sizes
        self._max_context_tokens = max_context_tokens
        self._hidden_SD = row.new_zeros(most, row.shape[1])
        self._positions_S = torch.zeros(most, dtype=torch.int64, device=device)
        self._starts = torch.zeros(most + 1, dtype=torch.int32, device=device)
        self._ends_S = torch.zeros(most, dtype=torch.int32, device=device)
        self._tables_LSW = torch.zeros(n_layers, most, width, dtype=torch.int32, device=device)
        self._slots_LS = torch.zeros(n_layers, most, dtype=torch.int64, device=device)
        self._of_size: dict[int, _Recorded] = {}
        self._began: tuple[int, int] | None = None  # rows and size that `_starts` is filled for
        self._marks: object = None

    def forget(self) -> None:
        """Record again: the pool of pages, whose address was recorded, is another one."""
        self._of_size.clear()

    def can_run(self, batch: attention.RaggedBatch) -> bool:
        n_requests = len(batch.host_ends)
        return n_requests <= self._sizes[-1] and int(batch.host_starts[-1]) == n_requests

    def run(
        self, hidden_RD: Tensor, batch: attention.RaggedBatch, tables_LRW: Tensor, slots_LR: Tensor
    ) -> Tensor:
        """Rows [R, D] behind the layers."""
        rows = len(hidden_RD)
        size = _padded(rows, self._sizes)
        if (marks := compat.workspace_marks()) != self._marks:  # scratch memory that was recorded
            self.forget()
            self._marks = marks
        if size not in self._of_size:
            self._of_size[size] = self._recorded(size)
            self._marks = compat.workspace_marks()
        if self._began != (rows, size):  # each request has one row: they begin where they did
            self._starts[: rows + 1] = batch.starts
            self._starts[rows + 1 : size + 1] = rows
            self._began = rows, size
        self._hidden_SD[:rows] = hidden_RD
        self._positions_S[:rows] = batch.positions
        self._ends_S[:rows] = batch.ends
        self._tables_LSW[:, :rows, : tables_LRW.shape[2]] = tables_LRW
        self._slots_LS[:, :rows] = slots_LR
        if rows < size:
            self._ends_S[rows:size] = 0
            self._slots_LS[:, rows:size] = _NO_SLOT
        recorded = self._of_size[size]
        recorded.renew()
        return recorded.replay()[:rows].clone()

    def _recorded(self, size: int) -> _Recorded:
        self._began = None
        self._starts[: size + 1] = torch.arange(size + 1, device=self._starts.device)
        self._ends_S[:size] = 1
        self._slots_LS[:, :size] = _NO_SLOT  # the runs until it is recorded write nothing
        batch = attention.RaggedBatch(  # of requests of the longest context
            starts=self._starts[: size + 1],
            ends=self._ends_S[:size],
            positions=self._positions_S[:size],
            host_starts=np.arange(size + 1, dtype=np.int32),
            host_ends=np.full(size, self._max_context_tokens, dtype=np.int32),
        )
        pages = self._tables_LSW[:, :size], self._slots_LS[:, :size]
        run, renew = self._prepare(batch, *pages)
        hidden_SD, positions_S = self._hidden_SD[:size], self._positions_S[:size]
        return _Recorded(replay=self._record(lambda: run(hidden_SD, positions_S)), renew=renew)


def _padded(count: int, sizes: tuple[int, ...]) -> int:
    return next(size for size in sizes if size >= count)
