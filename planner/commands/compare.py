"""`planner compare`: the flow of every placer's placement, and what each is forecast to serve."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from planner.bounds import compute_bound_tokens_per_s, upper_bound_tokens_per_s
from planner.commands.files import read_text
from planner.commands.forecasts import forecast_lines
from planner.commands.options import (
    add_objective_options,
    add_plan_options,
    plan_options,
    timed_problem,
)
from planner.commands.progress import Interrupt, LogProgress
from planner.domain.errors import InvalidPlacement
from planner.domain.flow import Flow
from planner.domain.problem import Problem
from planner.feasibility import check_rules, conform, restricted_problem
from planner.max_flow import max_flow, mean_hops
from planner.objectives.trial import Span
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import compute_plan, serving_trials
from planner.serialization import published_placements_from_text

_LABEL_WIDTH = 38
_SPAN = Span(warm_up=1.2, window=1.3)


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_plan_options(command, time_limit_s=None)
    add_objective_options(command)
    command.add_argument(
        "--placements",
        type=Path,
        metavar="FILE.published.json",
        help="also recompute the flow of these placements: {name: {layers, max_flow_tokens_per_s}}",
    )


def run(parsed: argparse.Namespace) -> None:
    options = plan_options(parsed, objective="decode")
    whole = timed_problem(parsed)
    check_rules(whole, options.rules)
    problem = restricted_problem(whole, options.rules)
    bound = upper_bound_tokens_per_s(problem)
    print(
        f"{problem.name}: {len(problem.cluster.nodes)} nodes, {problem.model.num_layers} layers, "
        f"partial inference {'on' if options.partial_inference else 'off'}; "
        f"bound {bound:.1f} tokens/s "
        f"(all compute / layers: {compute_bound_tokens_per_s(problem):.1f})"
    )
    print(
        f"{'placer':<{_LABEL_WIDTH}}{'tokens/s':>10}{'of bound':>10}{'hops':>7}{'nodes':>7}  remark"
    )
    for name, place in BASELINES.items():
        placement = place(problem)
        if placement is None:
            print(
                f"{name:<{_LABEL_WIDTH}}{'-':>10}{'-':>10}{'-':>7}{'-':>7}  does not fit this way"
            )
            continue
        flow = max_flow(
            problem,
            conform(problem, placement, options.rules),
            partial_inference=options.partial_inference,
            max_hops=options.rules.max_hops,
        )
        _print_row(name, flow, bound=bound)
    if parsed.time_limit_s is not None:
        interrupt = Interrupt()
        with interrupt.listening():
            plan = compute_plan(
                whole, options=options, progress=LogProgress(sys.stderr), cancel=interrupt
            )
        remark = f"{plan.stop_reason}; proven bound {plan.upper_bound_tokens_per_s:.1f}"
        _print_row(f"solve ({plan.placer})", plan.flow, bound=bound, remark=remark)
        if plan.forecast is not None:
            for line in forecast_lines(plan.forecast):
                print(f"  {line}")
    if options.objective != "flow":
        _print_forecasts(problem, options, simulates=parsed.time_limit_s is not None)
    if parsed.placements is not None:
        _compare_published(whole, parsed.placements, bound=bound)


def _print_forecasts(problem: Problem, options: PlanOptions, *, simulates: bool) -> None:
    """What the baselines serve under the policy, with the seeds of the plan's own forecast."""
    options = replace(options, rules=options.rules.once_restricted)
    trials = serving_trials(problem, options)
    seeds = (options.seed + 1, options.seed + 2)
    for name, place in BASELINES.items():
        placement = place(problem)
        if placement is None:
            continue
        trial = trials.estimated(conform(problem, placement, options.rules), placer=name)
        figures, reason = None, "give --time-limit to simulate"
        if simulates:
            figures = trials.simulated(trial, seeds=seeds, span=_SPAN)
            reason = "no request of such lengths fits"
        print(f"{name}:")
        for line in forecast_lines(trials.forecast(trial, figures), not_simulated=reason):
            print(f"  {line}")


def _compare_published(problem: Problem, path: Path, *, bound: float) -> None:
    """Published flows are those with partial inference; so are these, whatever was asked above."""
    published = published_placements_from_text(
        read_text(path), name_hint=str(path), num_layers=problem.model.num_layers
    )
    for name, entry in published.items():
        try:
            flow = max_flow(problem, entry.placement, partial_inference=True)
        except InvalidPlacement as error:
            raise InvalidPlacement(f"{path}: {name}: {error}") from None
        expected = entry.max_flow_tokens_per_s
        percent = 100 * (flow.value_tokens_per_s - expected) / max(expected, 1e-9)
        remark = f"published {expected:.1f}, differs by {abs(percent):.3f} %"
        _print_row(f"published: {name}", flow, bound=bound, remark=remark)


def _print_row(label: str, flow: Flow, *, bound: float, remark: str = "") -> None:
    value = flow.value_tokens_per_s
    share = value / bound if bound > 0 else 0.0
    row = f"{label:<{_LABEL_WIDTH}}{value:>10.1f}{share:>10.1%}{mean_hops(flow):>7.1f}"
    print(f"{row}{len(flow.nodes):>7}  {remark}".rstrip())
