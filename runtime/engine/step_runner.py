"""What runs the layers of a step, whichever code computes them.

A step is a ragged batch: its requests enter and leave at layers of their own (partial inference,
Helix §4.3). This module finds the rows that are active between two borders; a backend runs them.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from runtime.engine.host_memory import HostMemory, host_memory
from runtime.engine.pages import PageBooks, PageMoves, PageTable
from runtime.engine.sequence import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerShape:
    """The sizes of the model, and the types that rows are computed in and sent in."""

    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: torch.dtype
    wire_dtype: torch.dtype


class StepCache(Protocol):
    """The memory of the pages that `books` gives out."""

    @property
    def books(self) -> PageBooks: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def claimed_bytes(self) -> int:
        """Of `nbytes`, at least so much is taken from the system."""

    def resize(self, pages: int, tables: Iterable[PageTable]) -> None:
        """Have `pages` from now on, those in use as they were; see `PageBooks.resize`."""


class RankCache(StepCache, Protocol):
    """A rank's share of the pages, whose books rank 0 keeps for all."""

    def clear(self, pages: list[int]) -> None:
        """Clear them before a step writes to them."""

    def move(self, pages: int, moves: PageMoves) -> None:
        """Have memory for `pages`, and what is in the moved ones where they are now."""


class Runner(Protocol):
    """What samples behind a step needs of what runs it; used from one thread."""

    @property
    def shape(self) -> RunnerShape: ...

    @property
    def host(self) -> HostMemory: ...

    @property
    def held(self) -> Collection[int]: ...

    @property
    def cache(self) -> StepCache: ...

    @property
    def weights_bytes(self) -> int: ...

    @property
    def kv_bytes(self) -> int: ...

    def forward(self, step: Items[Work]) -> Tensor: ...

    def logits(self, hidden_RD: Tensor) -> Tensor: ...


class StepRunner(ABC):
    """Runs steps, and the output head on some of their rows. Used from one thread."""

    def __init__(self, shape: RunnerShape, device: torch.device) -> None:
        self.shape = shape
        self.device = device
        self.host: HostMemory = host_memory(device)

    @property
    @abstractmethod
    def held(self) -> Collection[int]:
        """The layers whose weights are in memory, as numbered in the model."""

    @property
    @abstractmethod
    def cache(self) -> RankCache: ...

    @property
    @abstractmethod
    def weights_bytes(self) -> int:
        """Of this process."""

    @property
    def kv_bytes(self) -> int:
        """Of this process."""
        return self.cache.nbytes

    @torch.inference_mode()
    def forward(self, step: Items[Work]) -> Tensor:
        """Rows [T, D] of the step, in its order, each behind the last layer its request runs here.

        Requests enter at `sequence.first` and leave at `sequence.end`. Between two layers where
        one enters or leaves, the same rows are active; they are gathered once per such stretch.
        """
        starts = np.cumsum([0, *(work.chunk.n_tokens for work in step)])
        hidden_TD = self._entering_rows(step, starts)
        positions = [np.arange(work.chunk.position, work.chunk.end) for work in step]
        positions_T = torch.from_numpy(np.concatenate(positions)).to(self.device)
        self._begin(positions_T)
        borders = sorted(
            {work.sequence.first for work in step} | {work.sequence.end for work in step}
        )
        for first, end in itertools.pairwise(borders):
            active = [
                index
                for index, work in enumerate(step)
                if work.sequence.first <= first < work.sequence.end
            ]
            if not active:
                continue
            layers, works = range(first, end), [step[index] for index in active]
            if len(active) == len(step):
                hidden_TD = self._run(layers, works, hidden_TD, positions_T, None)
                continue
            rows = [np.arange(starts[index], starts[index + 1]) for index in active]
            rows_R = torch.from_numpy(np.concatenate(rows)).to(self.device)
            hidden_TD[rows_R] = self._run(
                layers, works, hidden_TD[rows_R], positions_T[rows_R], rows_R
            )
        return hidden_TD

    @abstractmethod
    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V], float32, of rows behind the model's last layer."""

    @abstractmethod
    def _begin(self, positions_T: Tensor) -> None:
        """Prepare what all layers of the step share; `positions_T` are those of its rows."""

    @abstractmethod
    def _embed(self, token_ids_R: Tensor) -> Tensor:
        """Token ids [R], int64 -> hidden [R, D]. Called only where layer 0 is held."""

    @abstractmethod
    def _run(
        self,
        layers: range,
        works: list[Work],
        hidden_RD: Tensor,
        positions_R: Tensor,
        rows_R: Tensor | None,
    ) -> Tensor:
        """Rows [R, D] of `works` before `layers` -> behind them, residual added.

        `rows_R`: their places among the step's rows; None if they are all of them, in order.
        """

    def _entering_rows(self, step: Items[Work], starts: np.ndarray) -> Tensor:
        """hidden [T, D]: embedded token ids where a request enters at layer 0, else its rows."""
        shape = self.shape
        hidden_TD = self.host.empty(int(starts[-1]), shape.hidden_size, dtype=shape.wire_dtype)
        bytes_of_rows = hidden_TD.view(torch.uint8).numpy()
        token_ids, token_rows = [], []
        for work, start in zip(step, starts, strict=False):
            rows = slice(int(start), int(start) + work.chunk.n_tokens)
            if work.sequence.first == 0:
                token_ids.append(np.frombuffer(work.chunk.payload, dtype="<i4"))
                token_rows.append(np.arange(rows.start, rows.stop))
            else:
                received = np.frombuffer(work.chunk.payload, dtype=np.uint8)
                bytes_of_rows[rows] = received.reshape(work.chunk.n_tokens, -1)
        hidden_TD = self.host.to_device(hidden_TD).to(shape.dtype)
        if token_ids:
            ids_R = torch.from_numpy(np.concatenate(token_ids).astype(np.int64)).to(self.device)
            rows_R = torch.from_numpy(np.concatenate(token_rows)).to(self.device)
            hidden_TD[rows_R] = self._embed(ids_R)
        return hidden_TD
