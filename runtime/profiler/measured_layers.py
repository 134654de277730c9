"""The layers of a checkpoint that a measurement times, by the engine that a stage would have."""

from typing import Any

from runtime.engine.limits import EngineLimits
from runtime.engine.stage_engine import ReadLayers, StageEngine
from runtime.engine.step_runner import StepRunner
from runtime.profiler.step_times import DEEP


class MeasuredLayers:
    """Owns the layers that are timed; a `Measurement` asks it for runners.

    Opened when asked for: what is fetched and loaded is no more than that needs.
    """

    def __init__(self, engine: StageEngine[Any, Any]) -> None:
        self.engine = engine
        self._first: ReadLayers[StepRunner] | None = None

    @property
    def deep_bytes(self) -> int:
        """Of the weights that `deep` loads."""
        return self.engine.first_bytes(DEEP)

    def deep(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """Runs layers [0, `DEEP`) and [0, `SHALLOW`) with a cache of `pages` pages.

        Raises CheckpointError, CannotRun, and torch.OutOfMemoryError for too many pages.
        """
        if self._first is None:
            self._first = self.engine.first_layers(DEEP, limits)
        return self._first.runner(pages=pages)

    def last(self, limits: EngineLimits, *, pages: int) -> StepRunner:
        """Runs the last layer, with the output head. Raises the same."""
        num_layers = self.engine.sizes.num_layers
        last = self.engine.fetch_and_read(range(num_layers - 1, num_layers), limits)
        runner: StepRunner = last.runner(pages=pages)
        return runner
