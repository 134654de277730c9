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

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every name of the front; see `_MODULE_OF`
    from planner.bounds.best import upper_bound_tokens_per_s
    from planner.capacity import (
        LayerLimits,
        coverage_tokens_per_s,
        kv_room_token_layers,
        layer_limits,
        longest_ranges,
        max_layers,
        most_held,
    )
    from planner.commands.files import read_problem, write_plan
    from planner.domain.cluster import (
        COORDINATOR,
        RESERVED_NAMES,
        SINK,
        SOURCE,
        Cluster,
        Link,
        Node,
        SharedBandwidth,
        SharedDirection,
        SharedScope,
    )
    from planner.domain.errors import InvalidProblem, PlannerError
    from planner.domain.flow import EdgeFlow, NodeFlow
    from planner.domain.instance import BACKENDS, PlanMethod, PlannedInstance, instance_nodes
    from planner.domain.layer_times import LayerTimes
    from planner.domain.model_spec import ModelSpec
    from planner.domain.node_memory import KvMinimum
    from planner.domain.option import Option, OptionField, options_of
    from planner.domain.placement import LayerRange, Placement
    from planner.domain.plan import Incumbent, Plan
    from planner.domain.plan_forecast import (
        DEMAND_MET,
        Objective,
        PlanForecast,
        SimulatedFigures,
    )
    from planner.domain.problem import Problem, Workload
    from planner.domain.profile import ComputeProfile
    from planner.domain.rules import InvalidRules, PlacementRules
    from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
    from planner.explanation import explain, marginal_values, sentences_of_min_cut
    from planner.feasibility import check_rules, conform, restricted_problem
    from planner.flow_graph import FlowGraph, FlowGraphs
    from planner.generate import generated_cluster
    from planner.max_flow import flow_through_nodes
    from planner.memory import ModelMemory, NodeRoom, StepShape, kv_minimum, node_room
    from planner.multi_model.plan_models import plan_models
    from planner.multi_model.shares import MIXED, ModelShare
    from planner.objectives.goal import goal_for
    from planner.objectives.trial import Trials
    from planner.placers.base import CancelToken, InvalidOptions, NeverCancelled, Progress
    from planner.placers.board import LargestFlow
    from planner.placers.budgeted_moves import moved_layers
    from planner.placers.whole_machines import check_instances
    from planner.plan_instances import plan_by_method
    from planner.plan_options import (
        BASELINES,
        MAX_SEED,
        MAX_TIME_LIMIT_S,
        MIN_TIME_LIMIT_S,
        PlanOptions,
    )
    from planner.planning import NoPlacementFound, compute_plan, estimated_forecast
    from planner.refinement import Busy, Refinement, refine, refined_profile
    from planner.replanning.answers import ReplanPoint
    from planner.replanning.compute_replan import replan, unmoved_score, zero_moves
    from planner.replanning.options import ReplanOptions
    from planner.robust import compute_robust_plan, survival
    from planner.routers.leading_past import leads_past
    from planner.routers.load_aware import DEFAULT_THETA, MAX_THETA
    from planner.simulator.compiled_engine import Engine
    from planner.simulator.engine import EngineSetup, EngineStatistics, Occurrence
    from planner.simulator.forecast import Forecast, LinkForecast, spread_of
    from planner.simulator.record import RequestRecord
    from planner.simulator.simulate import SimulationOptions, simulate
    from planner.timing import derived_layer_times, layer_times_of, timing_source

# The imports above are read as text, as an index of names: at run time they are not executed.
_MODULE_OF = {
    name.name: f"{statement.module}"
    for block in ast.parse(Path(__file__).read_text("utf-8")).body
    if isinstance(block, ast.If)
    for statement in block.body
    if isinstance(statement, ast.ImportFrom)
    for name in statement.names
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
