"""How many decodes may share a step, so that requests stay spread over the stages of their paths.

A stage that takes all that waits gathers its requests into one convoy, and while it runs them the
other stages have nothing to do. MoLink (§4.3) keeps more micro-batches under way than a pipeline
has stages. With a pipeline per request no stage sees a whole pipeline, so each one measures how
often its own step fits into the time its requests take to come round again.
"""

import math
from collections.abc import Callable

from runtime.protocol.engine_options import EngineOptions

_WEIGHT = 0.05  # of one observation in the moving averages
# A row that arrives while a step runs is seen when it ends, half a step late on the average; the
# request's own step is the other half to one: a cycle is the time seen away and half a step.
_OWN_STEPS = 0.5


class DecodeCap:
    """Owns how many decodes a step may have; the stage asks it before each step.

    Moving averages of step and away times, and the cap that follows from them. No more
    micro-batches run than `steps_at_once`, as stages may share cores.
    """

    def __init__(
        self, options: EngineOptions, *, steps_at_once: Callable[[], float] = lambda: math.inf
    ) -> None:
        self._rule = options.decode_cap
        self._least = options.least_decode_cap
        self._most_micro_batches = options.most_micro_batches
        self._fixed_micro_batches = options.micro_batches
        self._step_s: float | None = None
        self._away_s: float | None = None
        self._steps_at_once = steps_at_once

    def observe_step(self, step_s: float) -> None:
        """A step that held decodes took that long."""
        self._step_s = _averaged(self._step_s, step_s)

    def observe_return(self, away_s: float) -> None:
        """A request's next token came that long after its last step here ended.

        Time it waits here is left out on purpose: a cap that is too low makes requests wait, and
        would, if waiting counted, see reason to fall further.
        """
        self._away_s = _averaged(self._away_s, away_s)

    @property
    def away_s(self) -> float | None:
        """How long a request usually was away; None before one returned."""
        return self._away_s

    @property
    def is_short_of_cores(self) -> bool:
        """Whether more steps of this stage fit into a cycle than cores can run at once."""
        measured = self._measured
        return measured is not None and self._steps_at_once() < measured

    @property
    def micro_batches(self) -> float | None:
        """M: steps of this stage that fit into a cycle, as far as cores can run them at once; None
        before both times are known.

        Where cores are short it is whole: a little more than 1 would leave a few requests over,
        whose steps cost as much as those of all others.
        """
        if self._fixed_micro_batches is not None:
            return self._fixed_micro_batches
        measured, at_once = self._measured, self._steps_at_once()
        if measured is None or measured <= at_once:
            return measured
        return float(max(1, math.floor(at_once + 0.5)))

    @property
    def _measured(self) -> float | None:
        if self._step_s is None or self._away_s is None or self._step_s <= 0:
            return None
        steps = self._away_s / self._step_s + _OWN_STEPS
        return min(max(steps, 1.0), float(self._most_micro_batches))

    def limit(self, *, resident: int) -> int | None:
        """Most decodes of a step while `resident` requests decode here; None: all."""
        if self._rule == "off":
            return None
        if self._rule != "adaptive":
            return self._rule
        micro_batches = self.micro_batches
        if micro_batches is None:
            return None
        return max(self._least, math.ceil(resident / micro_batches))


def _averaged(average: float | None, value: float) -> float:
    return value if average is None else average + _WEIGHT * (value - average)
