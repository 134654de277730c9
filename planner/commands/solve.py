"""`planner solve`: compute a plan and write it to a file."""

import argparse
import json
import sys
import time
from pathlib import Path

from planner.bounds import upper_bound_tokens_per_s
from planner.checked_plan import checked_plan
from planner.commands.files import check_writable, read_plan, write_document
from planner.commands.forecasts import forecast_lines
from planner.commands.options import (
    add_objective_options,
    add_plan_options,
    plan_options,
    timed_problem,
    with_objective,
)
from planner.commands.progress import Interrupt, shown_progress
from planner.compute_plan import PlanOptions, compute_plan
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.feasibility import restricted_problem
from planner.robust import compute_robust_plan
from planner.serialization import plan_to_dict
from planner.serialization.forecasts import forecast_to_dict

NAME = "solve"


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_plan_options(command, time_limit_s=60.0)
    add_objective_options(command)
    command.add_argument("--output", type=Path, required=True, metavar="PLAN.json")
    command.add_argument(
        "--start", type=Path, metavar="PLAN.json", help="go on from this plan, of any problem"
    )
    command.add_argument(
        "--survive-one-loss",
        action="store_true",
        help="make the flow large that is left when the worst node is lost",
    )
    command.add_argument(
        "--progress",
        action="store_true",
        help="a live line on a terminal, JSON lines on stdout when piped",
    )


def run(parsed: argparse.Namespace) -> None:
    options = with_objective(plan_options(parsed, time_limit_s=parsed.time_limit), parsed)
    output: Path = parsed.output
    check_writable(output)
    problem = timed_problem(parsed)
    start = None if parsed.start is None else read_plan(parsed.start).placement
    interrupt = Interrupt()
    with interrupt.listening(), shown_progress(asked_for=parsed.progress) as progress:
        if parsed.survive_one_loss:
            plan = _robust_plan(problem, options, start=start, interrupt=interrupt)
        else:
            plan = compute_plan(
                problem, options=options, progress=progress, cancel=interrupt, start=start
            )
    write_document(output, plan_to_dict(plan))
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
                    **({"forecast": forecast_to_dict(plan.forecast)} if plan.forecast else {}),
                }
            )
        )
        return
    print(
        f"{output}: {plan.flow.value_tokens_per_s:.1f} tokens/s by {plan.placer}, "
        f"{plan.gap:.1%} below the bound, {plan.hops:.1f} hops, "
        f"{len(plan.placement.layers)} nodes; stopped: {plan.stop_reason}, solver: {plan.solver}"
    )
    if plan.forecast is not None:
        for line in forecast_lines(plan.forecast):
            print(line)


def _robust_plan(
    problem: Problem, options: PlanOptions, *, start: Placement | None, interrupt: Interrupt
) -> Plan:
    started_s = time.monotonic()
    robust = compute_robust_plan(problem, options=options, start=start, cancel=interrupt)
    print(
        f"{robust.survival.flow_tokens_per_s:.1f} tokens/s survive the loss of any one node "
        f"(worst: {robust.survival.worst_node or 'none'}), at most "
        f"{robust.survival_bound_tokens_per_s:.1f} can",
        file=sys.stderr,
    )
    return checked_plan(
        problem,
        robust.placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(
            restricted_problem(problem, options.rules)
        ),
        placer="robust",
        solver="none",
        stop_reason="cancelled" if interrupt.is_cancelled() else "heuristic",
        elapsed_s=time.monotonic() - started_s,
    )
