"""Holds the estimate against the simulator over varied placements of one problem.

    python benchmarks/planner/estimate_accuracy.py PROBLEM [--layer-times FILE.csv] [--plans 60]

Placements are the baselines, the stage patterns of a sweep of hop limits, and what random walks of
several lengths make of these. Printed: rank correlation (Spearman), the median error, the ratio of
simulated to estimated decode tokens/s (10th, 50th, 90th percentile), and how much the best of the
five with the highest estimates serves of the best of all.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from planner.commands.files import read_problem, read_text
from planner.commands.options import POLICIES
from planner.compute_plan import BASELINES
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.estimate.compiled.stage_search import Cooling, Stages, anneal
from planner.objectives.goal import Goal
from planner.objectives.trial import Span, Trials
from planner.placers.base import NeverCancelled, SearchOptions
from planner.placers.decode_search import StageSearch
from planner.placers.stage_patterns import StagePatternPlacer
from planner.timing import attach_layer_times, timing_source

_HOP_SHARES = (0.34, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
_WALKS = (30, 100, 300, 3000)
_HOTNESS = (0.02, 0.3, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("--layer-times", type=Path, metavar="FILE.csv")
    parser.add_argument("--policy", choices=tuple(POLICIES), default="runtime")
    parser.add_argument("--plans", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="one line for each placement")
    parsed = parser.parse_args()
    problem = read_problem(parsed.problem)
    if parsed.layer_times is not None:
        problem = attach_layer_times(
            problem,
            layer_times_csv=read_text(parsed.layer_times),
            batch_limits_json=None,
            name_hint=str(parsed.layer_times),
        )
    trials = Trials(
        problem,
        goal=Goal(objective="decode"),
        policy=POLICIES[parsed.policy],
        partial_inference=True,
        max_hops=None,
    )
    estimated, simulated = [], []
    for name, placement in _placements(problem, trials, count=parsed.plans, seed=parsed.seed):
        trial = trials.estimated(placement, placer=name)
        figures = trials.simulated(trial, seeds=(parsed.seed,), span=Span(warm_up=1.0, window=1.5))
        if figures is None:
            continue
        estimated.append(trial.value)
        simulated.append(figures.decode_tokens_per_s)
        if parsed.verbose:
            print(f"{name:<24}{estimated[-1]:>10.1f}{simulated[-1]:>10.1f}", flush=True)
    print(
        f"{problem.name}, {timing_source(problem)} layer times, policy {parsed.policy}, "
        f"{len(estimated)} placements, seed {parsed.seed}: "
        f"{_summary(np.array(estimated), np.array(simulated))}"
    )


def _summary(estimated: np.ndarray, simulated: np.ndarray) -> str:
    ranks = [np.argsort(np.argsort(values)) for values in (estimated, simulated)]
    low, middle, high = np.percentile(simulated / estimated, [10, 50, 90])
    top = simulated[np.argsort(-estimated)[:5]].max() / simulated.max()
    return (
        f"Spearman {np.corrcoef(*ranks)[0, 1]:.3f}, "
        f"median error {np.median(np.abs(estimated / simulated - 1)):.1%}, "
        f"simulated / estimated {low:.2f} / {middle:.2f} / {high:.2f}, "
        f"top-5 regret {1 - top:.1%}"
    )


def _placements(
    problem: Problem, trials: Trials, *, count: int, seed: int
) -> Iterator[tuple[str, Placement]]:
    for name, place in BASELINES.items():
        placement = place(problem)
        if placement is not None:
            yield name, placement
            count -= 1
    names = [node.name for node in problem.cluster.nodes]
    search = StageSearch(trials.estimator, names=names, rules=PlacementRules())
    starts: list[Stages] = []
    for share in _HOP_SHARES:
        hops = max(1, round(share * len(names)))
        found = StagePatternPlacer().search(
            problem,
            options=SearchOptions(time_limit_s=5.0, rules=PlacementRules(max_hops=hops)),
            start=None,
            progress=lambda _: None,
            cancel=NeverCancelled(),
        )
        stages = found.placement and search.stages_of(found.placement)
        if stages and stages not in starts:
            starts.append(stages)
            yield f"patterns, {hops} hops", search.placement_of(stages)
    chance = random.Random(seed)
    for number in range(count - len(starts)):
        start, moves, hot = chance.choice(starts), chance.choice(_WALKS), chance.choice(_HOTNESS)
        walked = anneal(
            search.task,
            start,
            Cooling(moves=moves, hot=hot, cold=0.9 * hot, seed=seed * 1000 + number),
        )
        yield f"walk, {moves} at {hot:g}", search.placement_of(walked.last)


if __name__ == "__main__":
    main()
