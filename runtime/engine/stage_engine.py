"""What computes the layers of a stage, as far as opening and measuring one are concerned."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import Progress, WeightSource
from runtime.engine.holdings import Read
from runtime.engine.limits import EngineLimits
from runtime.engine.step_runner import StepRunner
from runtime.models.model_config import DTYPES
from runtime.protocol.engines import AUTOMATIC, ComputeDtype, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch

SizesT = TypeVar("SizesT", bound=DecoderSizes)
RunnerT = TypeVar("RunnerT", bound=StepRunner)
RunnerT_co = TypeVar("RunnerT_co", bound=StepRunner, covariant=True)
_COMPUTES_BFLOAT16 = (8, 0)  # GPUs from this capability on; those before emulate it, slowly


def no_progress(_done_bytes: int, _total_bytes: int) -> None:
    """A `Progress` that is shown to no one."""


class ReadLayers(Protocol[RunnerT_co]):
    """Layers in memory, before they have a KV cache."""

    @property
    def engine(self) -> str:
        """What computes them, in words for people."""

    def pages(self, limits: EngineLimits, *, planned: int, budget_bytes: int) -> int:
        """Of a KV cache beside them, `planned` from sizes alone. Raises BudgetTooSmall."""

    def runner(
        self, *, pages: int, most_pages: int = 0, wire_dtype: torch.dtype | None = None
    ) -> RunnerT_co:
        """Runs them with a cache of `pages` pages, expected to become `most_pages`. `wire_dtype`:
        that of rows that come and go; None: as computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Rank `rank` of the `ranks` processes that share each layer, which meet in a folder."""

    rank: int
    ranks: int
    meeting: str
    # to find each other once all are there, and for the slowest rank of a sum
    patience: timedelta = timedelta(minutes=2)


class Rank(Protocol[RunnerT_co]):
    """What a rank does in its own process, in this order."""

    def meet(self, place: RankPlace) -> None:
        """Join the group of all ranks. Raises RuntimeError if one does not come in time."""

    def read(self, progress: Progress) -> ReadLayers[RunnerT_co]:
        """Its share of the layers. Raises CannotRun, CheckpointError, OSError."""

    def leave(self) -> None:
        """Leave the group, if it ever joined it."""


class StageEngine(ABC, Generic[SizesT, RunnerT]):
    """Reads layers of one checkpoint and runs them; `open_stage` and profiles make one.

    Of the model as it is `stored`, `sizes` are those that are computed here.
    """

    def __init__(
        self,
        source: WeightSource,
        settings: EngineSettings = AUTOMATIC,
        device: torch.device | None = None,
    ) -> None:
        """`device` None: the first GPU, or the CPU. Raises CheckpointError."""
        self.source, self.settings = source, settings
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.stored = self._read_sizes()
        self.sizes: SizesT = self.stored.computed_in(
            compute_dtype(settings.compute_dtype, self.stored.dtype_name, self.device)
        )

    @abstractmethod
    def _read_sizes(self) -> SizesT:
        """As the checkpoint says. Raises CheckpointError."""

    @abstractmethod
    def wanted(self, names: Collection[str], layers: range) -> set[str]:
        """Of the tensors `names` of the checkpoint those that `read` reads, or refuses."""

    @abstractmethod
    def read(self, layers: range, limits: EngineLimits, progress: Progress) -> ReadLayers[RunnerT]:
        """`layers`, whose tensors were fetched. Raises CheckpointError and CannotRun."""

    @abstractmethod
    def read_beside(self, runner: RunnerT, limits: EngineLimits) -> Read | None:
        """What adds layers to `runner` while it serves; None: they cannot be added."""

    @abstractmethod
    def of_rank(self, ranks: int) -> DecoderSizes:
        """What one of `ranks` processes has that share each layer. Raises CheckpointError."""

    @abstractmethod
    def rank(self, ranks: int, layers: range, limits: EngineLimits) -> Rank[RunnerT]:
        """What this process, one of `ranks`, does before it runs steps of `layers`. Raises
        CannotRun and CheckpointError for what these cannot share."""

    @abstractmethod
    def first_layers(self, count: int, limits: EngineLimits) -> ReadLayers[RunnerT]:
        """The first `count` layers, or as many that take as long, for timing steps. Raises what
        `read` raises."""

    @abstractmethod
    def first_bytes(self, count: int) -> int:
        """Weights that `first_layers` loads."""

    def fetch(self, layers: range, progress: Progress) -> Progress:
        """Have the tensors of `layers` here; returns the progress of reading them. Raises
        CheckpointError."""
        return self.source.fetch(
            lambda names: self.wanted(names, layers),
            read_bytes=self.sizes.weights_bytes_of(layers),
            progress=progress,
        )

    def fetch_and_read(self, layers: range, limits: EngineLimits) -> ReadLayers[RunnerT]:
        """Without anyone to tell how far it is. Raises what `read` raises."""
        return self.read(layers, limits, self.fetch(layers, no_progress))

    def wire_dtype(self, launch: StageLaunch) -> torch.dtype:
        """Of the rows that stages exchange, the same for all of a deployment."""
        return DTYPES[launch.assignment.wire_dtype or self.stored.dtype_name]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """What each rank needs to know to take its part; it is sent to the ranks' processes.

    The layers of the checkpoint in `folder`, how they are computed, the type that rows come in, and
    the CPU threads of each rank.
    """

    engine_type: type[StageEngine[Any, Any]]
    folder: Path
    settings: EngineSettings
    layers: range
    limits: EngineLimits
    wire_dtype: torch.dtype
    threads: int

    def engine(self, rank: int) -> StageEngine[Any, Any]:
        """Of rank `rank`, whose GPU is the one of its number, of those it may see."""
        torch.set_num_threads(self.threads)
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device(f"cuda:{rank}")
            torch.cuda.set_device(device)
        return self.engine_type(WeightSource(folder=self.folder), self.settings, device)


def compute_dtype(chosen: ComputeDtype, stored: str, device: torch.device) -> str:
    """For a checkpoint whose type is `stored`: the chosen one, or the one the device has."""
    if chosen is not ComputeDtype.AUTO:
        return chosen.value
    is_lacking = (
        device.type == "cuda" and torch.cuda.get_device_capability(device) < _COMPUTES_BFLOAT16
    )
    return "float16" if stored == "bfloat16" and is_lacking else stored
