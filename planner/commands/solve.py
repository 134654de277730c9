"""`planner solve`: compute a plan and write it to a file."""

import argparse
import json
import sys
from pathlib import Path

from planner.commands.files import check_writable, read_plan, write_plan
from planner.commands.forecasts import forecast_lines, value_text
from planner.commands.options import (
    add_method_options,
    add_objective_options,
    add_plan_options,
    plan_options,
    timed_problem,
)
from planner.commands.progress import FORECAST, Interrupt, shown_progress
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.placers.base import Progress
from planner.plan_instances import plan_by_method
from planner.plan_options import PlanOptions
from planner.robust import compute_robust_plan
from planner.serialization.records import record_to_dict

_NONE_CAN = "no placement can do better: that takes every layer on two nodes; add memory"


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_plan_options(command, time_limit_s=60.0)
    add_objective_options(command)
    add_method_options(command)
    command.add_argument("--output", type=Path, required=True, metavar="PLAN.json")
    command.add_argument(
        "--start", type=Path, metavar="PLAN.json", help="go on from this plan, of any problem"
    )
    command.add_argument(
        "--survive-one-loss",
        action="store_true",
        help="make large what is left of the objective when the worst node is lost",
    )
    command.add_argument(
        "--progress",
        action="store_true",
        help="a live line on a terminal, JSON lines on stdout when piped",
    )


def run(parsed: argparse.Namespace) -> None:
    survives: bool = parsed.survive_one_loss
    options = plan_options(parsed, objective="decode")
    output: Path = parsed.output
    check_writable(output)
    problem = timed_problem(parsed)
    start = None if parsed.start is None else read_plan(parsed.start).placement
    interrupt = Interrupt()
    goal = "survives" if survives else FORECAST
    with interrupt.listening(), shown_progress(asked_for=parsed.progress, goal=goal) as progress:
        if survives:
            plan = _robust_plan(
                problem, options, start=start, progress=progress, interrupt=interrupt
            )
        else:
            plan = plan_by_method(
                problem, options=options, progress=progress, cancel=interrupt, start=start
            )
    write_plan(output, plan)
    if parsed.progress and not sys.stdout.isatty():
        print(
            json.dumps(
                {
                    "output": str(output),
                    "elapsed_s": plan.elapsed_s,
                    "flow_tokens_per_s": plan.flow.value_tokens_per_s,
                    "upper_bound_tokens_per_s": plan.upper_bound_tokens_per_s,
                    "gap": plan.gap,
                    "hops": plan.hops,
                    "placer": plan.placer,
                    "solver": plan.solver,
                    "stop_reason": plan.stop_reason,
                    **({"forecast": record_to_dict(plan.forecast)} if plan.forecast else {}),
                }
            )
        )
        return
    print(
        f"{output}: {plan.flow.value_tokens_per_s:.1f} tokens/s by {plan.placer}, "
        f"{plan.gap:.1%} below the bound{_of_what(plan)}, {plan.hops:.1f} hops, "
        f"{len(plan.placement.layers)} nodes; stopped: {plan.stop_reason}, solver: {plan.solver}"
    )
    if plan.forecast is not None:
        for line in forecast_lines(plan.forecast):
            print(line)
    for line in method_lines(plan):
        print(line)


def method_lines(plan: Plan) -> list[str]:
    """Which ways to serve were weighed, and both rankings of degrees."""
    if plan.method_choice is None:
        return []
    lines = [f"chosen: {plan.method_choice.chosen}"]
    for one in plan.method_choice.candidates:
        value = one.output_tokens_per_s
        said = "cannot be" if value is None else f"{value:.1f} output tokens/s"
        lines.append(f"  {one.method}: {said}{f' ({one.remark})' if one.remark else ''}")
    for rank in plan.method_choice.degrees:
        said = rank.refused or (
            f"{rank.static_tokens_per_s:.1f} tokens/s by Algorithm 1, "
            f"{rank.simulated_tokens_per_s:.1f} simulated, {rank.output_tokens_per_s:.1f} of output"
        )
        lines.append(f"  {rank.machine}, degree {rank.degree}, {rank.instances} instances: {said}")
    return lines


def _of_what(plan: Plan) -> str:
    """Names the quantity of the bound, if the objective is not flow."""
    if plan.forecast is None:
        return ""
    if plan.forecast.upper_bound is not None:
        return " on flow"
    return f" on flow (no bound on {plan.forecast.objective!r} is known)"


def _robust_plan(
    problem: Problem,
    options: PlanOptions,
    *,
    start: Placement | None,
    progress: Progress,
    interrupt: Interrupt,
) -> Plan:
    robust = compute_robust_plan(
        problem, options=options, start=start, progress=progress, cancel=interrupt
    )
    reached, bound = robust.survival.value, robust.survival_bound_tokens_per_s
    limit = f"no bound on {options.objective!r} is known"
    if bound is not None:
        limit = _NONE_CAN
        if bound > 0:
            limit = f"at most {bound:.1f} can (gap {1 - reached / bound:.1%})"
    print(
        f"{value_text(options.objective, reached)} survive the loss of any one node "
        f"(worst: {robust.survival.worst_node or 'none'}); {limit}",
        file=sys.stderr,
    )
    return robust.plan
