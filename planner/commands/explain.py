"""`planner explain`: what limits a plan, what survives a loss, what one more unit would bring."""

import argparse
from pathlib import Path

from planner.commands.files import read_plan_of
from planner.commands.forecasts import value_text
from planner.commands.options import (
    add_objective_options,
    add_plan_options,
    plan_options,
    timed_problem,
)
from planner.commands.progress import Interrupt
from planner.explanation import MarginalValue, explain_min_cut, marginal_values
from planner.replanning.compute_replan import zero_moves
from planner.robust import survival

_LABEL_WIDTH = 44


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_plan_options(command, time_limit_s=60.0)
    command.add_argument("plan", type=Path, metavar="PLAN.json")
    command.add_argument(
        "--search",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds of replanning with one more node of each kind (default: 0)",
    )
    add_objective_options(command)


def run(parsed: argparse.Namespace) -> None:
    problem = timed_problem(parsed)
    plan = read_plan_of(problem, parsed.plan)
    options = plan_options(parsed, objective="flow" if plan.forecast is None else "decode")
    options = options.for_running(plan)
    kept, flow = zero_moves(problem, plan.placement, options=options)
    for number, sentence in enumerate(explain_min_cut(problem, kept, flow)):
        print(sentence if number == 0 else f"  {sentence}")
    worst = survival(problem, kept, options=options)
    if worst.worst_node:
        left = value_text(options.objective, worst.value)
        print(f"Without {worst.worst_node}, the worst loss: {left}")
    interrupt = Interrupt()
    with interrupt.listening():
        values = marginal_values(
            problem, kept, options=options, search_s=parsed.search, cancel=interrupt
        )
    print(f"Values by the objective {options.objective!r}:")
    print(f"{'one more unit':<{_LABEL_WIDTH}}{'layers kept':>13}{'replanned':>13}{'gain':>9}")
    for value in values:
        print(_row(value))


def _row(value: MarginalValue) -> str:
    replanned = value.replanned_tokens_per_s
    return (
        f"{value.resource:<{_LABEL_WIDTH}}{value.kept_tokens_per_s:>13.1f}"
        f"{'-' if replanned is None else f'{replanned:.1f}':>13}{value.gain:>+9.1%}"
    )
