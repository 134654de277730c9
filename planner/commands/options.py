"""The options that every command shares, and the PlanOptions that they make."""

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

from planner.commands.arguments import add_option
from planner.commands.files import read_problem, read_text
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.option import options_of
from planner.domain.placement import LayerRange
from planner.domain.plan_forecast import LimitPercentile, Objective
from planner.domain.problem import Problem
from planner.domain.rules import InvalidRules, PlacementRules
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions
from planner.timing import attach_layer_times

POLICIES = {"runtime": RUNTIME_POLICY, "published": PUBLISHED_POLICY}
_OPTIONS, _RULES = options_of(PlanOptions), options_of(PlacementRules)


def add_plan_options(command: argparse.ArgumentParser, *, time_limit_s: float | None) -> None:
    """The problem, and how to search; `time_limit_s` is the default."""
    command.add_argument("problem", type=Path, metavar="PROBLEM", help="JSON or YAML problem file")
    add_search_options(command, time_limit_s=time_limit_s)


def add_search_options(command: argparse.ArgumentParser, *, time_limit_s: float | None) -> None:
    """Add options for the search and its objective."""
    add_option(
        command,
        _OPTIONS["time_limit_s"],
        default=time_limit_s,
        help="seconds for the search"
        + (" (default: %(default)g)" if time_limit_s else "; without it only baselines run"),
    )
    for name in ("partial_inference", "placer", "solver", "prune_degree", "relative_gap", "seed"):
        add_option(command, _OPTIONS[name])
    warm_start = _OPTIONS["warm_start"]  # PlanOptions says what is wrong with another word
    add_option(command, warm_start, choices=None, metavar="WHICH")
    rules = command.add_argument_group("rules")
    add_option(rules, _RULES["max_hops"])
    add_option(rules, _RULES["excluded_nodes"], "--exclude", metavar="NODE")
    add_option(rules, _RULES["pinned"], "--pin", metavar="NODE=FIRST:END")
    rules.add_argument(
        "--max-layers",
        action="append",
        default=[],
        metavar="[NODE=]COUNT",
        help="most layers on a node, or on every node",
    )
    add_option(rules, _RULES["kv_reserve_tokens"], "--kv-reserve")


def add_objective_options(command: argparse.ArgumentParser) -> None:
    """Add options for the objective and its forecasts."""
    add_option(command, _OPTIONS["objective"], default=None)
    add_option(command, _OPTIONS["ttft_limit_s"])
    add_option(command, _OPTIONS["tpot_limit_s"])
    command.add_argument(
        "--limit-percentile",
        choices=get_args(LimitPercentile),
        default=PlanOptions().limit_percentile,
        help="which request has to keep to the limits: the median one, or p95 (default: "
        "%(default)s)",
    )
    add_option(command, _OPTIONS["demand_tokens_per_s"], "--demand")
    command.add_argument(
        "--policy",
        choices=tuple(POLICIES),
        default="runtime",
        help="what the forecast is of: our runtime, or the published system (default: %(default)s)",
    )
    add_timing_options(command.add_argument_group("measured times, for forecasts"))


def add_method_options(command: argparse.ArgumentParser) -> None:
    """Whether nodes run stages, or the whole model."""
    for name in ("method", "backend", "tensor_parallel"):
        add_option(command, _OPTIONS[name])


def plan_options(parsed: argparse.Namespace, *, objective: Objective = "flow") -> PlanOptions:
    """The search that was asked for, by default for `objective`.

    Raises InvalidOptions and InvalidRules.
    """
    names = {one.name for one in fields(PlanOptions)}
    values = {name: value for name, value in vars(parsed).items() if name in names}
    if values.get("tensor_parallel") is not None and values["method"] == "pipelines":
        raise InvalidOptions(
            f"--tensor-parallel {values['tensor_parallel']} means nothing to pipelines, which have "
            "no instances; choose --method instances or mixed, or leave it out"
        )
    if "policy" in values:
        values["policy"] = POLICIES[values["policy"]]
    given = {name: value for name, value in values.items() if value is not None}
    return PlanOptions(**({"objective": objective} | given), rules=_rules(parsed))


def timed_problem(parsed: argparse.Namespace, path: Path | None = None) -> Problem:
    """The problem at `path`, or that was named, with the measured times that were.

    Raises InvalidProblem.
    """
    problem = read_problem(path or parsed.problem)
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


def _rules(parsed: argparse.Namespace) -> PlacementRules:
    every_node: int | None = None
    limits: dict[str, int] = {}
    for text in parsed.max_layers:
        node, _, count = text.rpartition("=")
        if not re.fullmatch("[0-9]+", count):
            raise InvalidRules(f"--max-layers is {text!r}; write COUNT or NODE=COUNT")
        if node in limits or (not node and every_node is not None):
            raise InvalidRules(f"--max-layers of {node or 'every node'} is given twice; keep one")
        if node:
            limits[node] = int(count)
        else:
            every_node = int(count)
    return PlacementRules(
        max_hops=parsed.max_hops,
        excluded_nodes=frozenset(parsed.excluded_nodes),
        pinned=_pins(parsed.pinned),
        max_layers_per_node=every_node,
        max_layers_of=limits,
        kv_reserve_tokens=parsed.kv_reserve_tokens,
    )


def _pins(texts: list[str]) -> dict[str, LayerRange]:
    pinned: dict[str, LayerRange] = {}
    for text in texts:
        match = re.fullmatch(r"(.+)=([0-9]+):([0-9]+)", text)
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
