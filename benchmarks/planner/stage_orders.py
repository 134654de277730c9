"""What balanced weights gain on plans of equal flow that differ in the order of their stages only.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.stage_orders DATA_FOLDER
        [--instance NAME] [--seeds 1 2] [--parameters FILE]

DATA_FOLDER is that of `decode_bars`. For each seed, of the search and of the lengths: the plan of
most flow within the instance's hop limit; its stages, those alike together, in every order of the
kinds; for each order decode tokens/s under the published policy and router with plain weights and
with balanced ones, as `decode_bars` has them, and their ratio. All orders have the same flow and
hops, and the same KV room where links are alike.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, permutations
from pathlib import Path
from statistics import fmean, median

from benchmarks.planner.decode_bars import PARAMETERS, read_bench
from planner.commands.files import read_text
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import PUBLISHED_POLICY


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Nodes that hold the same layers; `kind` names their number, profile and layers."""

    kind: str
    nodes: tuple[str, ...]
    layers: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA_FOLDER")
    parser.add_argument("--instance", default="single24_llama70b")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parsed = parser.parse_args()
    parameters = json.loads(read_text(parsed.parameters))
    limited = parameters["instances"][parsed.instance]["hop_limited"]
    ratios = []
    print(f"{'seed':>4}{'plain':>8}{'balanced':>10}{'ratio':>7}  order")
    for seed in parsed.seeds:
        bench = read_bench(parsed.data, parsed.instance, seed=seed, parameters=parameters)
        plan = bench.plan(PUBLISHED_POLICY, max_hops=limited["max_hops"], objective="flow")
        for order in orders_by_kind(stages_of(bench.problem, plan)):
            placement = placement_of(order)
            plain = bench.plain(placement).decode_tokens_per_s
            balanced = bench.reweighted(placement).decode_tokens_per_s
            ratios.append(balanced / plain)
            kinds = ", ".join(
                f"{len(tuple(alike))} of {kind}"
                for kind, alike in groupby(order, key=lambda stage: stage.kind)
            )
            print(f"{seed:>4}{plain:>8.1f}{balanced:>10.1f}{ratios[-1]:>7.3f}  {kinds}", flush=True)
    reached = sum(ratio >= limited["bar"] for ratio in ratios)
    print(
        f"ratio: least {min(ratios):.3f}, median {median(ratios):.3f}, mean {fmean(ratios):.3f}, "
        f"largest {max(ratios):.3f}; {reached} of {len(ratios)} reach {limited['bar']}"
    )


def stages_of(problem: Problem, placement: Placement) -> tuple[Stage, ...]:
    """The stages in the order of their layers. Raises ValueError where nodes overlap in part."""
    nodes: dict[tuple[int, int], list[str]] = {}
    for name, held in placement.layers.items():
        nodes.setdefault((held.first, held.end), []).append(name)
    stages, reached = [], 0
    for (first, end), names in sorted(nodes.items()):
        if first != reached:
            raise ValueError(
                f"{names[0]!r} holds layers [{first}, {end}), which does not begin where the stage "
                f"before ends, at {reached}; only plans of whole stages have an order of stages"
            )
        profiles = sorted(problem.profile_of(name).name for name in names)
        stages.append(
            Stage(
                kind=f"{'+'.join(profiles)} with {end - first}",
                nodes=tuple(names),
                layers=end - first,
            )
        )
        reached = end
    return tuple(stages)


def orders_by_kind(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    """Every order of the kinds of stages, those of a kind one after the other."""
    kinds = dict.fromkeys(stage.kind for stage in stages)
    for order in permutations(kinds):
        yield tuple(stage for kind in order for stage in stages if stage.kind == kind)


def placement_of(stages: tuple[Stage, ...]) -> Placement:
    """The placement with these stages one after the other."""
    layers: dict[str, LayerRange] = {}
    first = 0
    for stage in stages:
        layers |= dict.fromkeys(stage.nodes, LayerRange(first=first, end=first + stage.layers))
        first += stage.layers
    return Placement(layers=layers)


if __name__ == "__main__":
    main()
