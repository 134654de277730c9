"""Loses each node of a plan in turn and replans; prints what moves how many bytes.

    OMP_NUM_THREADS=1 python benchmarks/planner/replan.py cluster.json --seconds 10

README.md beside this file says how to read the table.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from planner.compute_plan import PlanOptions, compute_plan
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import NeverCancelled
from planner.replan import ReplanOptions, ReplanPoint, replan
from planner.serialization import problem_from_text

HEADER = (
    f"{'lost':<14}{'held':>10}{'zero moves':>12}{'scratch':>10}{'GB':>8}"
    f"{'1/4 of it':>11}{'ratio':>8}{'GB':>8}{'first at':>10}{'3 % at':>8}"
)
QUARTER = 0.25
CLOSE_ENOUGH = 0.97


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path, metavar="PROBLEM")
    parser.add_argument("--seconds", type=float, default=10.0, help="per loss")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="lose only every so many-th node")
    parsed = parser.parse_args()
    problem = problem_from_text(parsed.problem.read_text(), name_hint=str(parsed.problem))
    options = PlanOptions(time_limit_s=parsed.seconds, seed=parsed.seed)
    running = compute_plan(
        problem, options=options, progress=lambda _: None, cancel=NeverCancelled()
    )
    print(f"{problem.name}: {running.flow.value_tokens_per_s:.1f} tokens/s before the loss")
    print(HEADER, flush=True)
    for name in sorted(running.placement.layers)[:: parsed.every]:
        print(
            _row(problem, running.placement, name, options=options, seconds=parsed.seconds),
            flush=True,
        )
    return 0


def _row(
    problem: Problem, running: Placement, lost: str, *, options: PlanOptions, seconds: float
) -> str:
    left = replace(problem, cluster=problem.cluster.without({lost}))
    heard: list[ReplanPoint] = []
    found = replan(
        left,
        running,
        options=ReplanOptions(plan=options, time_limit_s=seconds),
        progress=heard.append,
        cancel=NeverCancelled(),
    )
    fresh = found.from_scratch
    first = next((point for point in heard if point.flow_tokens_per_s > 0), None)
    row = f"{lost:<14}{running.layers[lost]!s:>10}{found.zero_moves.flow_tokens_per_s:>12.1f}"
    if fresh is None or first is None:
        return f"{row}  nothing found from scratch"
    within = [p for p in heard if p.moved_bytes <= QUARTER * fresh.moved_bytes]
    best = max(within, key=lambda point: point.flow_tokens_per_s)
    enough = CLOSE_ENOUGH * fresh.flow_tokens_per_s
    close = next((p for p in within if p.flow_tokens_per_s >= enough), None)
    return (
        f"{row}{fresh.flow_tokens_per_s:>10.1f}{fresh.moved_bytes / 1e9:>8.1f}"
        f"{best.flow_tokens_per_s:>11.1f}{best.flow_tokens_per_s / fresh.flow_tokens_per_s:>8.3f}"
        f"{best.moved_bytes / 1e9:>8.1f}{first.elapsed_s:>10.2f}"
        f"{'-' if close is None else f'{close.elapsed_s:.2f}':>8}"
    )


if __name__ == "__main__":
    sys.exit(main())
