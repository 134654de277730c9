"""Loses nodes under a plan for decode throughput and replans; prints what is served and moved.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.replan_served PROBLEM.json --seconds 10

Seconds are of CPU time. README.md beside this file says how to read the table.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from planner.commands.files import read_plan, read_problem
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.objectives.trial import Span, Trials
from planner.placers.budgeted_moves import moved_layers
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.replanning.answers import ReplanPoint
from planner.replanning.compute_replan import replan
from planner.replanning.options import ReplanOptions

QUARTER = 0.25
ENOUGH = 0.97
SEEDS = (11, 12, 13)
SPAN = Span(warm_up=1.2, window=1.3)
HEADER = (
    f"{'lost':<26}{'like it':>8}{'zero moves':>11}{'scratch':>9}{'GB':>8}{'1/4 of GB':>11}"
    f"{'GB':>8}{'share':>7}{'first s':>9}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path, metavar="PROBLEM")
    parser.add_argument("--running", type=Path, metavar="PLAN.json", help="instead of a new plan")
    parser.add_argument("--seconds", type=float, default=10.0, help="from scratch, and to replan")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="rows, counted from 0")
    parsed = parser.parse_args()
    problem = read_problem(parsed.problem)
    options = PlanOptions(time_limit_s=parsed.seconds, seed=parsed.seed)
    running = (
        planned(problem, options) if parsed.running is None else read_plan(parsed.running)
    ).placement
    print(f"{problem.name}: {served(problem, running):.1f} tokens/s before")
    print(HEADER, flush=True)
    for number, (name, count) in enumerate(losses(problem, running)):
        if parsed.only is None or number in parsed.only:
            print_row(problem, running, name, count, options)


def losses(problem: Problem, running: Placement) -> Iterator[tuple[str, int]]:
    """One of every kind of node in every place, and how many these are."""
    names: dict[tuple[object, ...], list[str]] = {}
    for name, held in sorted(running.layers.items()):
        node = problem.cluster.node(name)
        likeness = (node.compute_profile, node.region, held.first, held.end)
        names.setdefault((*likeness, running.component_of(name)), []).append(name)
    for alike in names.values():
        yield alike[0], len(alike)


def print_row(
    problem: Problem, running: Placement, name: str, count: int, options: PlanOptions
) -> None:
    left = replace(problem, cluster=problem.cluster.without({name}))
    fresh = planned(left, options).placement
    layer_bytes = problem.model.bytes_per_layer
    fresh_bytes = moved_layers(running, fresh) * layer_bytes
    first_s: list[float] = []

    def hear(point: ReplanPoint) -> None:
        if point.value > 0:
            first_s.append(point.elapsed_s)

    found = replan(
        left,
        running,
        options=ReplanOptions(
            plan=options, time_limit_s=options.time_limit_s, budget_bytes=QUARTER * fresh_bytes
        ),
        progress=hear,
        clock=time.process_time,
    )
    scratch, chosen = served(left, fresh), served(left, found.chosen.placement)
    share = chosen / scratch
    node = problem.cluster.node(name)
    print(
        f"{name + ' ' + node.compute_profile:<26}{count:>8}"
        f"{served(left, found.zero_moves.placement):>11.1f}{scratch:>9.1f}{fresh_bytes / 1e9:>8.1f}"
        f"{chosen:>11.1f}{found.chosen.moved_bytes / 1e9:>8.1f}{share:>7.3f}"
        f"{min(first_s, default=float('inf')):>9.2f}{'' if share >= ENOUGH else '  below'}",
        flush=True,
    )


def planned(problem: Problem, options: PlanOptions) -> Plan:
    return compute_plan(problem, options=options, clock=time.process_time)


def served(problem: Problem, placement: Placement) -> float:
    """Decode tokens/s by simulation, with the same requests for every placement."""
    trials = Trials(problem, PlanOptions())
    trial = trials.estimated(placement, placer="")
    if trial.value <= 0:
        return 0.0
    figures = trials.simulated(trial, seeds=SEEDS, span=SPAN)
    return 0.0 if figures is None else figures.decode_tokens_per_s


if __name__ == "__main__":
    main()
