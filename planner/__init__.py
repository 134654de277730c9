"""Placement of an LLM over mixed GPUs: the nouns and the mathematics, usable from a shell.

    from planner import PlanOptions, compute_plan, explain, read_problem, write_plan

    problem = read_problem(Path("cluster.json"))
    plan = compute_plan(problem, options=PlanOptions(time_limit_s=10))
    print(*explain(problem, plan), sep="\\n")
    write_plan(Path("plan.json"), plan)

No Django, no Celery, no plotly, no torch. Every package may import it; runtime takes only
`planner.domain`, `planner.routers` and `planner.latency_model`. A name below is loaded when it is
first used, so `import planner` costs nothing. The site knows the planner by these names.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what type checkers read; `_NAMES_IN` says the same at run time
    from planner.bounds import upper_bound_tokens_per_s
    from planner.capacity import (
        layer_limits,
        longest_ranges,
        max_layers,
        most_held,
        throughput_tokens_per_s,
    )
    from planner.commands.files import read_problem, write_plan
    from planner.domain.cluster import COORDINATOR, SINK, SOURCE, Cluster, Link, Node
    from planner.domain.errors import InvalidProblem, PlannerError
    from planner.domain.flow import EdgeFlow, NodeFlow
    from planner.domain.instance import instance_nodes
    from planner.domain.option import Option, options_of
    from planner.domain.placement import LayerRange, Placement
    from planner.domain.plan import Incumbent, Plan
    from planner.domain.plan_forecast import Objective, PlanForecast, SimulatedFigures
    from planner.domain.problem import Problem
    from planner.domain.rules import InvalidRules, PlacementRules
    from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
    from planner.explanation import explain, explain_min_cut, marginal_values
    from planner.feasibility import check_rules, conform, restricted_problem
    from planner.flow_graph import FlowGraphs
    from planner.max_flow import flow_through_nodes
    from planner.objectives.goal import Goal, goal_for
    from planner.objectives.trial import Trials
    from planner.placers.base import CancelToken, InvalidOptions, Progress
    from planner.placers.budgeted_moves import moved_layers
    from planner.placers.flow_meter import FlowMeter
    from planner.placers.whole_machines import check_instances
    from planner.plan_instances import plan_by_method
    from planner.plan_options import (
        BASELINES,
        MAX_SEED,
        MAX_TIME_LIMIT_S,
        MIN_TIME_LIMIT_S,
        PlanOptions,
    )
    from planner.planning import NoPlacementFound, compute_plan
    from planner.replanning import (
        ReplanOptions,
        ReplanPoint,
        replan,
        unmoved_tokens_per_s,
        zero_moves,
    )
    from planner.robust import compute_robust_plan, survival
    from planner.simulator.compiled_engine import new_engine
    from planner.simulator.engine import Engine, EngineSetup, Occurrence
    from planner.simulator.forecast import Forecast, LinkForecast
    from planner.simulator.simulate import SimulationOptions, simulate
    from planner.timing import timing_source

_NAMES_IN = {
    "bounds": "upper_bound_tokens_per_s",
    "capacity": "layer_limits longest_ranges max_layers most_held throughput_tokens_per_s",
    "commands.files": "read_problem write_plan",
    "domain.cluster": "COORDINATOR SINK SOURCE Cluster Link Node",
    "domain.errors": "InvalidProblem PlannerError",
    "domain.flow": "EdgeFlow NodeFlow",
    "domain.instance": "instance_nodes",
    "domain.option": "Option options_of",
    "domain.placement": "LayerRange Placement",
    "domain.plan": "Incumbent Plan",
    "domain.plan_forecast": "Objective PlanForecast SimulatedFigures",
    "domain.problem": "Problem",
    "domain.rules": "InvalidRules PlacementRules",
    "domain.serving_policy": "PUBLISHED_POLICY RUNTIME_POLICY ServingPolicy",
    "explanation": "explain explain_min_cut marginal_values",
    "feasibility": "check_rules conform restricted_problem",
    "flow_graph": "FlowGraphs",
    "max_flow": "flow_through_nodes",
    "objectives.goal": "Goal goal_for",
    "objectives.trial": "Trials",
    "placers.base": "CancelToken InvalidOptions Progress",
    "placers.budgeted_moves": "moved_layers",
    "placers.flow_meter": "FlowMeter",
    "placers.whole_machines": "check_instances",
    "plan_instances": "plan_by_method",
    "plan_options": "BASELINES MAX_SEED MAX_TIME_LIMIT_S MIN_TIME_LIMIT_S PlanOptions",
    "planning": "NoPlacementFound compute_plan",
    "replanning": "ReplanOptions ReplanPoint replan unmoved_tokens_per_s zero_moves",
    "robust": "compute_robust_plan survival",
    "simulator.compiled_engine": "new_engine",
    "simulator.engine": "Engine EngineSetup Occurrence",
    "simulator.forecast": "Forecast LinkForecast",
    "simulator.simulate": "SimulationOptions simulate",
    "timing": "timing_source",
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names.split()}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    return getattr(import_module(f"planner.{_MODULE_OF[name]}"), name)
