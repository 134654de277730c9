"""Methods by the names in `base.PLACERS`."""

from planner.placers.board import Method
from planner.placers.interval_annealing import search_interval_annealing
from planner.placers.milp import search_milp
from planner.placers.portfolio import search_by_all
from planner.placers.region_chain import search_region_chains
from planner.placers.stage_annealing import search_stage_annealing
from planner.placers.stage_patterns import search_stage_patterns

METHODS: dict[str, Method] = {
    "auto": search_by_all,
    "milp": search_milp,
    "stage-patterns": search_stage_patterns,
    "region-chain": search_region_chains,
    "stage-annealing": search_stage_annealing,
    "interval-annealing": search_interval_annealing,
}
