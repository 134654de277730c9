"""What computes the layers of a stage, as far as opening and measuring one are concerned."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.weight_source import Progress, WeightSource
from runtime.engine.compute_dtype import compute_dtype, wire_dtype
from runtime.engine.follower import RankShare
from runtime.engine.holdings import Read
from runtime.engine.limits import EngineLimits
from runtime.engine.step_runner import StepRunner
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch

SizesT = TypeVar("SizesT", bound=DecoderSizes)
RunnerT = TypeVar("RunnerT", bound=StepRunner)
RunnerT_co = TypeVar("RunnerT_co", bound=StepRunner, covariant=True)


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


class StageEngine(ABC, Generic[SizesT, RunnerT]):
    """Reads layers of one checkpoint and runs them; `open_stage` and profiles make one.

    Of the model as it is `stored`, `sizes` are those that are computed here.
    """

    def __init__(self, source: WeightSource, settings: EngineSettings = AUTOMATIC) -> None:
        """Raises CheckpointError."""
        self.source = source
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
    def share(self, launch: StageLaunch, limits: EngineLimits, device_type: str) -> RankShare:
        """What these processes need to know."""

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
        """Of the rows that its stages exchange."""
        return wire_dtype(launch.assignment, self.stored)
