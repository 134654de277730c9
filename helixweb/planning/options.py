"""Plan options between the planner's dataclass, JSON columns, forms and the REST API."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from planner.compute_plan import BASELINES, PlanOptions
from planner.placers.solvers.choice import SolverName

SOLVERS: tuple[str, ...] = get_args(SolverName)
WARM_STARTS = ("best", "none", *BASELINES)
# A run occupies a worker for its time limit.
MIN_TIME_LIMIT_S, MAX_TIME_LIMIT_S = 1.0, 4 * 3600.0
MIN_PRUNE_DEGREE, MAX_PRUNE_DEGREE = 1.0, 1000.0
MAX_RELATIVE_GAP = 0.5
DEFAULTS = PlanOptions()


def options_to_json(options: PlanOptions) -> dict[str, Any]:
    """Plain JSON values."""
    return {**asdict(options), "baselines": list(options.baselines)}


def options_from_json(values: Mapping[str, Any]) -> PlanOptions:
    """The options `options_to_json` wrote; keys left out take their defaults.

    Raises planner's InvalidOptions.
    """
    given = dict(values)
    if "baselines" in given:
        given["baselines"] = tuple(given["baselines"])
    return PlanOptions(**given)
