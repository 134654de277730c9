"""What runs the layers of a step, whichever code computes them.

A step is a ragged batch: its requests enter and leave at layers of their own (partial inference,
Helix §4.3). This module finds the rows that are active between two borders; a backend runs them.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.host_memory import HostMemory, Parcel, Sent, host_memory
from runtime.engine.kv_cache import PageCache
from runtime.engine.sequence import Work, active_between_borders
from runtime.models.model_config import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerShape:
    """The sizes of the model, and the types that rows are computed in and sent in."""

    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: torch.dtype
    wire_dtype: torch.dtype


# Rows [R, D] before some layers, their positions [R] and their places [R] among the step's rows
# (None: they are all of them, in order) -> the rows behind these layers, residual added.
RunLayers = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class StepRunner(ABC):
    """Runs steps, and the output head on some of their rows. Used from one thread."""

    def __init__(
        self,
        sizes: DecoderSizes,
        cache: PageCache,
        device: torch.device,
        *,
        wire_dtype: torch.dtype | None = None,
    ) -> None:
        """`wire_dtype`: that of rows that come and go; None: as computed."""
        dtype = DTYPES[sizes.dtype_name]
        self.shape = RunnerShape(
            num_layers=sizes.num_layers,
            hidden_size=sizes.hidden_size,
            vocab_size=sizes.vocab_size,
            dtype=dtype,
            wire_dtype=wire_dtype or dtype,
        )
        self.sizes = sizes
        self.device = device
        self.cache = cache
        self.host: HostMemory = host_memory(device)

    @property
    @abstractmethod
    def held(self) -> Collection[int]:
        """The layers whose weights are in memory, as numbered in the model."""

    @abstractmethod
    def forget(self, layers: Collection[int]) -> None:
        """Free the weights of these, of which no request runs any."""

    @property
    def weights_bytes(self) -> int:
        """Of this process."""
        return self.sizes.weights_bytes_of(self.held)

    @property
    def kv_bytes(self) -> int:
        """Of this process."""
        return self.cache.nbytes

    @torch.inference_mode()
    def forward(self, step: Items[Work]) -> Tensor:
        """Rows [T, D] of the step, in its order, each behind the last layer its request runs here.

        Requests enter at `sequence.first` and leave at `sequence.end`. Between two layers where
        one enters or leaves, the same rows are active; they are gathered once per such stretch.
        All that the host knows of the step goes to the device in one copy before any layer runs.
        """
        starts = np.cumsum([0, *(work.chunk.n_tokens for work in step)])
        parcel = self.host.parcel()
        entering_rows = self._enter(step, starts, parcel)
        positions = [np.arange(work.chunk.position, work.chunk.end) for work in step]
        positions_T = parcel.add(np.concatenate(positions))
        stretches: list[tuple[RunLayers, Sent | None]] = []
        for layers, active in active_between_borders(step):
            run = self._prepare_layers(layers, [step[index] for index in active], parcel)
            is_part = len(active) < len(step)
            stretches.append((run, parcel.add(_rows_of(active, starts)) if is_part else None))
        begin = self._prepare_step(parcel)
        parcel.send()
        begin(positions_T())
        hidden_TD = entering_rows()
        for run, sent_R in stretches:
            if sent_R is None:
                hidden_TD = run(hidden_TD, positions_T(), None)
            else:
                rows_R = sent_R()
                hidden_TD[rows_R] = run(hidden_TD[rows_R], positions_T()[rows_R], rows_R)
        return hidden_TD

    @abstractmethod
    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V], float32, of rows behind the model's last layer."""

    @abstractmethod
    def _prepare_step(self, parcel: Parcel) -> Callable[[Tensor], None]:
        """What begins a step, given the positions [T] of its rows, once what it adds to `parcel` is
        sent."""

    @abstractmethod
    def _embed(self, token_ids_R: Tensor) -> Tensor:
        """Token ids [R], int64 -> hidden [R, D]. Called only where layer 0 is held."""

    @abstractmethod
    def _prepare_layers(self, layers: range, works: list[Work], parcel: Parcel) -> RunLayers:
        """What runs `works` through `layers`, once what it adds to `parcel` is sent."""

    def _enter(
        self, step: Items[Work], starts: NDArray[np.int64], parcel: Parcel
    ) -> Callable[[], Tensor]:
        """Gives rows [T, D]: embedded token ids where a request enters at layer 0, else its rows,
        once what it adds to `parcel` is sent."""
        with_ids = [index for index, work in enumerate(step) if work.sequence.first == 0]
        with_rows = [index for index, work in enumerate(step) if work.sequence.first > 0]
        n_rows, row_bytes = int(starts[-1]), self.shape.hidden_size * self.shape.wire_dtype.itemsize
        ids_R = received = None
        if with_ids:
            ids = [np.frombuffer(step[index].chunk.payload, dtype="<i4") for index in with_ids]
            ids_R = parcel.add(np.concatenate(ids).astype(np.int64))
        if with_rows:
            rows = [np.frombuffer(step[index].chunk.payload, np.uint8) for index in with_rows]
            received = parcel.fill(
                (sum(map(len, rows)) // row_bytes, row_bytes),
                np.uint8,
                lambda out: np.concatenate(rows, out=out.reshape(-1)),
            )
        places = [parcel.add(_rows_of(some, starts)) for some in (with_ids, with_rows) if some]

        def hidden_TD() -> Tensor:
            entering = []
            if ids_R is not None:
                entering.append(self._embed(ids_R()))
            if received is not None:
                entering.append(received().view(self.shape.wire_dtype).to(self.shape.dtype))
            if len(entering) == 1:
                return entering[0]
            all_TD = entering[0].new_empty(n_rows, self.shape.hidden_size)
            for rows_R, entering_RD in zip(places, entering, strict=True):
                all_TD[rows_R()] = entering_RD
            return all_TD

        return hidden_TD


def _rows_of(indices: list[int], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of the step's requests at `indices`, which begin at `starts`."""
    return np.concatenate([np.arange(starts[index], starts[index + 1]) for index in indices])
