"""Holds the estimate against the simulator over varied placements of one problem.

    python -m benchmarks.planner.estimate_accuracy [PROBLEM] [--layer-times FILE.csv] [--plans 60]
        [--generated NODES/REGIONS/SEED/MODEL]

Placements are the baselines, the stage patterns of a sweep of hop limits, what random walks of
several lengths make of these, and on generated clusters, whose smaller models
(`compare_objectives`) make short ones, components by kind and region too. Printed: rank correlation
(Spearman), the median error, the ratio of simulated to estimated decode tokens/s (10th, 50th, 90th
percentile), and how much the best of the five with the highest estimates serves of the best of all.
"""

import argparse
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.planner.compare_objectives import MODELS, with_model
from planner.commands.files import read_problem, read_text
from planner.commands.options import POLICIES
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.objectives.arena import Arena
from planner.objectives.partitions import partitions
from planner.objectives.stage_search import Stages, StageSearch
from planner.objectives.trial import Span, Trials
from planner.placers.base import NeverCancelled, SearchOptions
from planner.placers.board import Board
from planner.placers.stage_patterns import search_stage_patterns
from planner.placers.stop import Stop
from planner.plan_options import BASELINES, PlanOptions
from planner.timing import attach_layer_times, timing_source

_HOP_SHARES = (0.34, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
_PATTERNS_S = 3.0  # of CPU
_WALKS = (30, 100, 300, 3000)
_ARENA_MOVES = (1, 200, 2000)
_ARENA_HOTNESS = 0.05
_HOTNESS = (0.02, 0.3, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path, nargs="?")
    parser.add_argument("--generated", metavar="NODES/REGIONS/SEED/MODEL")
    parser.add_argument("--layer-times", type=Path, metavar="FILE.csv")
    parser.add_argument("--policy", choices=tuple(POLICIES), default="runtime")
    parser.add_argument("--plans", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="one line for each placement")
    parsed = parser.parse_args()
    if (parsed.problem is None) == (parsed.generated is None):
        parser.error("give a PROBLEM or --generated, one of them")
    problem = (
        read_problem(parsed.problem) if parsed.generated is None else _generated(parsed.generated)
    )
    if parsed.layer_times is not None:
        problem = attach_layer_times(
            problem,
            layer_times_csv=read_text(parsed.layer_times),
            batch_limits_json=None,
            name_hint=str(parsed.layer_times),
        )
    trials = Trials(problem, PlanOptions(policy=POLICIES[parsed.policy]))
    estimated, simulated = [], []
    placements = _placements(problem, trials, count=parsed.plans, seed=parsed.seed)
    if parsed.generated is not None:
        placements = itertools.chain(placements, _divided(problem, trials, seed=parsed.seed))
    for name, placement in placements:
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


def _stop(seconds: float) -> Stop:
    return Stop(time_limit_s=seconds, cancel=NeverCancelled(), clock=time.process_time)


def _generated(text: str) -> Problem:
    nodes, regions, seed, model = text.split("/")
    problem = generated_cluster(num_nodes=int(nodes), num_regions=int(regions), seed=int(seed))
    return with_model(problem, MODELS[model])


def _divided(problem: Problem, trials: Trials, *, seed: int) -> Iterator[tuple[str, Placement]]:
    """Components of every partition, searched a little and some more."""
    for number, partition in enumerate(partitions(problem)):
        for moves in _ARENA_MOVES:
            parts = []
            for place, names in enumerate(partition):
                arena = Arena(
                    trials,
                    names=names,
                    rules=PlacementRules(),
                    seed=seed * 31 + number * 7 + place,
                )
                arena.seed_by_patterns(_stop(1.0), further=_stop(1.0))
                arena.anneal(moves=moves, hot=_ARENA_HOTNESS)
                if arena.best is not None:
                    parts.append(arena.best)
            if len(parts) > 1:
                yield (
                    f"{len(parts)} components, {moves}",
                    Placement(
                        layers={name: held for part in parts for name, held in part.layers.items()},
                        components=tuple(frozenset(part.layers) for part in parts),
                    ),
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
    search = StageSearch(trials.estimator, names=names, rules=PlacementRules(), goal=trials.goal)
    starts: list[Stages] = []
    for share in _HOP_SHARES:
        hops = max(1, round(share * len(names)))
        found = Board(
            problem,
            SearchOptions(rules=PlacementRules(max_hops=hops)),
            stop=_stop(_PATTERNS_S),
        )
        search_stage_patterns(found, 0)
        stages = found.placement and search.stages_of(found.placement)
        if stages and stages not in starts:
            starts.append(stages)
            yield f"patterns, {hops} hops", search.placement_of(stages)
    if not starts:
        raise SystemExit(f"no aligned stages of {problem.name} were found to walk from")
    chance = random.Random(seed)
    for number in range(count - len(starts)):
        start, moves, hot = chance.choice(starts), chance.choice(_WALKS), chance.choice(_HOTNESS)
        walked = search.walked(start, moves=moves, hot=hot, seed=seed * 1000 + number)
        yield f"walk, {moves} at {hot:g}", search.placement_of(walked)


if __name__ == "__main__":
    main()
