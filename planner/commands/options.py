"""The options that every command shares, and the PlanOptions that they make."""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

from planner.commands.files import read_problem, read_text
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.instance import BACKENDS, PLAN_METHODS
from planner.domain.placement import LayerRange
from planner.domain.plan_forecast import LimitPercentile, Objective
from planner.domain.problem import Problem
from planner.domain.rules import InvalidRules, PlacementRules
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.placers.base import InvalidOptions
from planner.placers.choice import PlacerName
from planner.placers.solvers.choice import SolverName
from planner.plan_options import BASELINES, PlanOptions
from planner.timing import attach_layer_times

DEFAULT_OBJECTIVE: Objective = "decode"
POLICIES = {"runtime": RUNTIME_POLICY, "published": PUBLISHED_POLICY}


def add_plan_options(command: argparse.ArgumentParser, *, time_limit_s: float | None) -> None:
    """The problem, and how to search; `time_limit_s` is the default."""
    command.add_argument("problem", type=Path, metavar="PROBLEM", help="JSON or YAML problem file")
    add_search_options(command, time_limit_s=time_limit_s)


def add_search_options(command: argparse.ArgumentParser, *, time_limit_s: float | None) -> None:
    """What to search for, and how."""
    defaults = PlanOptions()
    command.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        default=time_limit_s,
        help="seconds for the search"
        + (" (default: %(default)g)" if time_limit_s else "; without it only baselines run"),
    )
    command.add_argument(
        "--partial-inference",
        action=argparse.BooleanOptionalAction,
        default=defaults.partial_inference,
        help="let a request run fewer layers on a node than it holds",
    )
    command.add_argument(
        "--placer",
        choices=get_args(PlacerName),
        default=defaults.placer,
        help="how to search (default: %(default)s, all of them in turn)",
    )
    command.add_argument("--solver", choices=get_args(SolverName), default=defaults.solver)
    command.add_argument(
        "--prune-degree", type=float, metavar="LINKS", help="keep this many links per node"
    )
    command.add_argument(
        "--warm-start",
        default=defaults.warm_start,
        metavar="WHICH",
        help=f"start from best, none, or a baseline: {', '.join(BASELINES)}",
    )
    command.add_argument(
        "--relative-gap",
        type=float,
        default=defaults.relative_gap,
        metavar="RATIO",
        help="stop this close to the proven bound (default: %(default)s)",
    )
    command.add_argument(
        "--seed", type=int, default=defaults.seed, help="of the search (default: %(default)s)"
    )
    _add_rules(command.add_argument_group("rules"))


def add_objective_options(command: argparse.ArgumentParser) -> None:
    """What to make large, and what forecasts stand on."""
    command.add_argument(
        "--objective",
        choices=get_args(Objective),
        help="decode: forecast decode throughput (default); flow: the max flow (the default with "
        "--survive-one-loss); latency: rate within --ttft-limit and --tpot-limit; cost: tokens "
        "per price of the nodes used; "
        "fewest_nodes: idle nodes at a decode throughput of --demand",
    )
    command.add_argument(
        "--ttft-limit", type=float, metavar="S", help="seconds to the first token, at most"
    )
    command.add_argument(
        "--tpot-limit", type=float, metavar="S", help="seconds per output token, at most"
    )
    command.add_argument(
        "--limit-percentile",
        choices=get_args(LimitPercentile),
        default=PlanOptions().limit_percentile,
        help="which request has to keep to the limits: the median one, or p95 (default: "
        "%(default)s)",
    )
    command.add_argument(
        "--demand", type=float, metavar="TOKENS", help="decode tokens/s that must be served"
    )
    command.add_argument(
        "--policy",
        choices=tuple(POLICIES),
        default="runtime",
        help="what the forecast is of: our runtime, or the published system (default: %(default)s)",
    )
    add_timing_options(command.add_argument_group("measured times, for forecasts"))


def plan_options(parsed: argparse.Namespace, *, time_limit_s: float) -> PlanOptions:
    """A search for the largest flow. Raises InvalidOptions and InvalidRules."""
    return PlanOptions(
        time_limit_s=time_limit_s,
        objective="flow",
        partial_inference=parsed.partial_inference,
        placer=parsed.placer,
        solver=parsed.solver,
        prune_degree=parsed.prune_degree,
        warm_start=parsed.warm_start,
        relative_gap=parsed.relative_gap,
        seed=parsed.seed,
        rules=_rules(parsed),
    )


def add_method_options(command: argparse.ArgumentParser) -> None:
    """Whether nodes run stages, or the whole model."""
    defaults = PlanOptions()
    command.add_argument(
        "--method",
        choices=PLAN_METHODS,
        default=defaults.method,
        help="pipelines of stages, instances of the whole model on the machines that hold it, or "
        "mixed, whatever is forecast to write most (default: %(default)s)",
    )
    command.add_argument("--backend", choices=BACKENDS, default=defaults.backend)
    command.add_argument(
        "--tensor-parallel",
        type=int,
        metavar="GPUS",
        help="the degree of every instance (default: the best of each machine)",
    )


def with_method(options: PlanOptions, parsed: argparse.Namespace) -> PlanOptions:
    """The same search for the method that was asked for. Raises InvalidOptions."""
    if parsed.method == "pipelines" and parsed.tensor_parallel is not None:
        raise InvalidOptions(
            f"--tensor-parallel {parsed.tensor_parallel} means nothing to pipelines, which have no "
            "instances; choose --method instances or mixed, or leave it out"
        )
    return replace(
        options,
        method=parsed.method,
        backend=parsed.backend,
        tensor_parallel=parsed.tensor_parallel,
    )


def with_objective(
    options: PlanOptions,
    parsed: argparse.Namespace,
    *,
    default: Objective = DEFAULT_OBJECTIVE,
) -> PlanOptions:
    """The same search for the objective that was asked for. Raises InvalidOptions."""
    return replace(
        options,
        objective=parsed.objective or default,
        ttft_limit_s=parsed.ttft_limit,
        tpot_limit_s=parsed.tpot_limit,
        limit_percentile=parsed.limit_percentile,
        demand_tokens_per_s=parsed.demand,
        policy=POLICIES[parsed.policy],
    )


def timed_problem(parsed: argparse.Namespace) -> Problem:
    """The problem that was named, with the measured times that were. Raises InvalidProblem."""
    problem = read_problem(parsed.problem)
    if parsed.layer_times is None:
        if parsed.batch_limits is not None:
            raise InvalidProblem("--batch-limits is given without --layer-times; give both")
        return problem
    limits: Path | None = parsed.batch_limits
    return attach_layer_times(
        problem,
        layer_times_csv=read_text(parsed.layer_times),
        batch_limits_json=None if limits is None else read_text(limits),
        name_hint=str(parsed.layer_times if limits is None else f"{parsed.layer_times}, {limits}"),
    )


def add_timing_options(group: argparse._ArgumentGroup) -> None:
    """Files that `timed_problem` reads."""
    group.add_argument(
        "--layer-times",
        type=Path,
        metavar="FILE.csv",
        help="columns model, gpu, phase, batch_tokens, time_ms_per_layer; without it times are "
        "derived from the profiles' throughput",
    )
    group.add_argument(
        "--batch-limits",
        type=Path,
        metavar="FILE.json",
        help="model -> gpu -> prompt_max_requests and decode_max_tokens by layers held",
    )


def _add_rules(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-hops", type=int, metavar="M", help="no request visits more than M stages"
    )
    group.add_argument(
        "--exclude", action="append", default=[], metavar="NODE", help="a node to hold nothing"
    )
    group.add_argument(
        "--pin",
        action="append",
        default=[],
        metavar="NODE=FIRST:END",
        help="a node to hold exactly layers FIRST to END - 1",
    )
    group.add_argument(
        "--max-layers",
        action="append",
        default=[],
        metavar="[NODE=]COUNT",
        help="most layers on a node, or on every node",
    )
    group.add_argument(
        "--kv-reserve",
        type=float,
        default=0.0,
        metavar="TOKENS",
        help="KV room for that many tokens on each layer that a node holds",
    )


def _rules(parsed: argparse.Namespace) -> PlacementRules:
    every_node: int | None = None
    limits: dict[str, int] = {}
    for text in parsed.max_layers:
        node, _, count = text.rpartition("=")
        if not re.fullmatch(r"\d+", count):
            raise InvalidRules(f"--max-layers is {text!r}; write COUNT or NODE=COUNT")
        if node in limits or (not node and every_node is not None):
            raise InvalidRules(f"--max-layers of {node or 'every node'} is given twice; keep one")
        if node:
            limits[node] = int(count)
        else:
            every_node = int(count)
    return PlacementRules(
        max_hops=parsed.max_hops,
        excluded_nodes=frozenset(parsed.exclude),
        pinned=_pins(parsed.pin),
        max_layers_per_node=every_node,
        max_layers_of=limits,
        kv_reserve_tokens=parsed.kv_reserve,
    )


def _pins(texts: list[str]) -> dict[str, LayerRange]:
    pinned: dict[str, LayerRange] = {}
    for text in texts:
        match = re.fullmatch(r"(.+)=(\d+):(\d+)", text)
        if match is None:
            raise InvalidRules(f"--pin is {text!r}; write NODE=FIRST:END, for example node-0=0:3")
        node = match[1]
        try:
            pin = LayerRange(first=int(match[2]), end=int(match[3]))
        except InvalidPlacement as error:
            raise InvalidRules(f"--pin is {text!r}: {error}") from None
        if pinned.setdefault(node, pin) != pin:
            raise InvalidRules(
                f"node {node!r} is pinned to layers {pinned[node]} and to {pin}; keep one"
            )
    return pinned
