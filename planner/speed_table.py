"""T_j of all nodes as one array (Helix §4.2)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.capacity import LayerLimits, throughput_tokens_per_s
from planner.domain.problem import Problem


def speeds_by_layers(
    problem: Problem, names: Sequence[str], limits: Sequence[LayerLimits]
) -> npt.NDArray[np.float64]:
    """[i, j]: T_j of node i, 0 for more layers than it may hold in the middle of the model."""
    speeds = np.zeros((len(names), 1 + max((one.middle for one in limits), default=0)))
    for row, (name, one) in enumerate(zip(names, limits, strict=True)):
        for layers in range(1, one.middle + 1):
            speeds[row, layers] = throughput_tokens_per_s(problem, name, layers)
    return speeds
