"""What an annealing loop is given. Flows are integers, so that sums are exact."""

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from planner.chance import first_random

IntegerArray: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

Energy = TypeVar("Energy", int, float)
State = TypeVar("State")
Range: TypeAlias = tuple[int, int]
"""(first layer, layers held)"""
Ends: TypeAlias = tuple[int, int]
"""(first layer, end); equal when nothing is held"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long to anneal and how boldly: `moves` moves, temperature from `hot` down to `cold`."""

    moves: int
    hot: float
    cold: float
    seed: int

    @property
    def cooling(self) -> float:
        """The factor from one move's temperature to the next."""
        return float((self.cold / self.hot) ** (1.0 / max(1, self.moves)))

    @property
    def first_random(self) -> int:
        """The generator's start, in 1 .. 2**31 - 2."""
        return first_random(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed(Generic[Energy, State]):
    """Where a loop ended: the least energy found, its state, and the state to go on from."""

    energy: Energy
    best: State
    last: State


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """A chain of at most `max_stages` over n nodes that shall carry `target`; flows are integers.

    `speeds_NJ[i, j]` is T_j of node i, 0 where it cannot hold j layers. `links[i, k]` is the
    capacity from node i to node k, index n being the coordinator. `neighbours[i]` are nodes worth
    sharing a stage or a crossing with, K for every node. `weight` is what an impassable crossing
    costs, in missing layers. `limits_NE` as in IntervalTask; None where the model's ends cost no
    layers.
    """

    num_layers: int
    target: int
    max_stages: int
    speeds_NJ: IntegerArray
    links: IntegerArray
    neighbours_NK: IntegerArray
    weight: float
    limits_NE: IntegerArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTask:
    """Ranges for n nodes that shall cover every layer with `target`; as in StageTask.

    A node never holds more than `limits_NE[i, e]` layers, and none while `limits_NE[i, 0]` is 0.
    e is 0 in the middle of the model, 1 with its first layer, 2 with its last, 3 with both
    (`planner.capacity.LayerLimits`). With `spares`
    1 (not 0) they shall cover every layer also without the fastest node that holds it.
    """

    num_layers: int
    target: int
    speeds_NJ: IntegerArray
    limits_NE: IntegerArray
    spares: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """Ranges (first, end) near the `running` ones that shall carry `target` over every layer.

    Speeds and limits as in IntervalTask. Each layer to load beyond `budget_layers` costs `penalty`,
    each layer that lacks anything costs `charge` beside what it lacks. `links` as in StageTask;
    None where they pass all that nodes compute and ranges need not meet.
    """

    num_layers: int
    target: int
    speeds_NJ: IntegerArray
    limits_NE: IntegerArray
    running: list[Ends]
    budget_layers: int
    penalty: int
    charge: int
    links: IntegerArray | None
