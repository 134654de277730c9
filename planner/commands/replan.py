"""`planner replan`: from a running plan and a changed problem to a plan that moves few bytes."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from planner.checked_plan import checked_plan
from planner.commands.files import check_writable, read_plan_of, write_plan
from planner.commands.forecasts import forecast_lines
from planner.commands.options import (
    add_objective_options,
    add_plan_options,
    plan_options,
    timed_problem,
)
from planner.commands.progress import FORECAST, Interrupt
from planner.replanning.answers import Replan, ReplanPoint
from planner.replanning.compute_replan import replan
from planner.replanning.options import ReplanOptions


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_plan_options(command, time_limit_s=10.0)
    add_objective_options(command)
    command.add_argument("running", type=Path, metavar="PLAN.json", help="the plan that runs")
    command.add_argument("--output", type=Path, required=True, metavar="PLAN.json")
    command.add_argument(
        "--budget-gb", type=float, metavar="GB", help="move at most this much (10^9 bytes)"
    )


def run(parsed: argparse.Namespace) -> None:
    output: Path = parsed.output
    check_writable(output)
    problem = timed_problem(parsed)
    running = read_plan_of(problem, parsed.running)
    asked = plan_options(parsed, objective="flow" if running.forecast is None else "decode")
    options = ReplanOptions(
        plan=asked.for_running(running),
        time_limit_s=parsed.time_limit_s,
        budget_bytes=None if parsed.budget_gb is None else parsed.budget_gb * 1e9,
    )
    interrupt = Interrupt()
    with interrupt.listening():
        found = replan(
            problem, running.placement, options=options, progress=_print_progress, cancel=interrupt
        )
    chosen = found.chosen
    plan = checked_plan(
        problem,
        chosen.placement,
        partial_inference=options.plan.partial_inference,
        max_hops=options.plan.rules.max_hops,
        upper_bound_tokens_per_s=found.upper_bound_tokens_per_s,
        placer=f"replan: {chosen.method}",
        solver="none",
        stop_reason="cancelled" if interrupt.is_cancelled() else "heuristic",
        elapsed_s=chosen.elapsed_s,
    )
    write_plan(output, replace(plan, forecast=found.forecast))
    _print_front(found)
    if found.forecast is not None:
        print(f"chosen: {_row(chosen)}")
        for line in forecast_lines(found.forecast):
            print(line)


def _print_progress(point: ReplanPoint) -> None:
    print(f"{point.elapsed_s:8.2f} s  {_row(point)}", file=sys.stderr, flush=True)


def _print_front(found: Replan) -> None:
    for point in found.pareto:
        mark = "  <- chosen" if point is found.chosen else ""
        print(f"{_row(point)}{mark}")


def _row(point: ReplanPoint) -> str:
    value = point.score.objective_value
    served = "" if value is None else f"{value:12.1f} {FORECAST}"
    moved = f"{point.moved_bytes / 1e9:10.2f} GB moved  {point.method}"
    return f"{point.flow_tokens_per_s:12.1f} tokens/s{served}  {moved}"
