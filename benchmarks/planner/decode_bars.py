"""What plans for decode throughput serve, against the published plans on the same machines.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.decode_bars DATA_FOLDER
        [--instances NAME ...] [--parts PART ...] [--parameters FILE]

DATA_FOLDER has problems/ and profiles/ as the Helix artifact published them. Per instance and seed,
which is the search's and that of the simulated lengths, sustained decode tokens/s of

    routing      the published placement, balanced weights for plain max-flow weights
    greedy       our plan for the published policy against the published one, both greedy
    runtime      our plan under our runtime's policy against the published plan and policy
    placement    the same against the published placement, with balanced weights, under our policy
    hop_limited  our plan with a hop limit, greedy: against plain max-flow weights on the same plan,
                 and against the published plan

Plans come from `compute_plan` with objective "decode" in the time limit, in seconds of CPU.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulator.published_flow import published_weights, with_shared_cards
from planner.balanced_flow import balanced_weights
from planner.commands.files import read_problem, read_text
from planner.compute_plan import PlanOptions, compute_plan
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
from planner.placers.base import NeverCancelled
from planner.serialization import published_placements_from_text
from planner.simulator.forecast import Forecast
from planner.simulator.simulate import SimulationOptions, simulate
from planner.timing import attach_layer_times
from planner.workload.demand import Backlog
from planner.workload.lengths import published_lengths

PARAMETERS = Path(__file__).with_name("decode_bars.json")
PARTS = ("routing", "greedy", "runtime", "placement", "hop_limited")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One instance and seed."""

    name: str
    problem: Problem
    published: Placement
    seed: int
    parameters: Mapping[str, Any]

    def balanced(self, placement: Placement, policy: ServingPolicy) -> Forecast:
        """Balanced weights and our router."""
        weights = balanced_weights(self.problem, placement, partial_inference=True)
        return self._simulated(self.problem, placement, weights, policy, router="iwrr")

    def plain(self, placement: Placement) -> Forecast:
        """The published policy, router and solver's weights, cards shared by its links."""
        card = self.parameters["card_bytes_per_s"]
        weights = published_weights(
            self.problem, placement, partial_inference=False, card_bytes_per_s=card
        )
        problem = with_shared_cards(self.problem, weights, card_bytes_per_s=card)
        return self._simulated(problem, placement, weights, PUBLISHED_POLICY, router="published")

    def plan(self, policy: ServingPolicy, *, max_hops: int | None = None) -> Placement:
        return compute_plan(
            self.problem,
            options=PlanOptions(
                time_limit_s=self.parameters["time_limit_s"],
                policy=policy,
                partial_inference=False,
                seed=self.seed,
                rules=PlacementRules(max_hops=max_hops),
            ),
            progress=lambda _: None,
            cancel=NeverCancelled(),
            clock=time.process_time,
        ).placement

    def show(self, part: str, what: str, forecast: Forecast) -> float:
        print(
            f"{self.name:<20}{self.seed:>5}  {part:<12}{what:<34}"
            f"{forecast.decode_tokens_per_s:>9.1f}{forecast.ttft.p50_s:>8.2f}"
            f"{forecast.tpot.p50_s:>8.2f}",
            flush=True,
        )
        return forecast.decode_tokens_per_s

    def _simulated(
        self,
        problem: Problem,
        placement: Placement,
        weights: Mapping[str, Mapping[str, float]],
        policy: ServingPolicy,
        *,
        router: Any,
    ) -> Forecast:
        return simulate(
            problem,
            placement=placement,
            routing_weights=weights,
            router=router,
            demand=Backlog(lengths=published_lengths(self.seed)),
            policy=policy,
            partial_inference=True,
            options=SimulationOptions(
                warm_up_s=self.parameters["warm_up_s"],
                window_s=self.parameters["window_s"],
                page_tokens=1,
                fixed_output_tokens=self.parameters["fixed_output_tokens"],
            ),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA_FOLDER")
    parser.add_argument("--instances", nargs="+", metavar="NAME")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parsed = parser.parse_args()
    parameters = json.loads(read_text(parsed.parameters))
    print(f"{'instance':<20}{'seed':>5}  {'part':<12}{'':<34}{'tokens/s':>9}{'TTFT':>8}{'TPOT':>8}")
    ratios: dict[tuple[str, str], list[float]] = {}
    for name in parsed.instances or parameters["instances"]:
        for seed in parameters["seeds"]:
            bench = read_bench(parsed.data, name, seed=seed, parameters=parameters)
            for part, ratio in ratios_of(bench, parsed.parts).items():
                ratios.setdefault((name, part), []).append(ratio)
    print(f"{'instance':<20}{'part':<30}{'bar':>6}  ratio of every seed")
    for (name, part), values in ratios.items():
        known = parameters["instances"][name]
        limited = known.get("hop_limited", {}).get("bar")
        bar = limited if part.startswith("hop_limited") else known["bars"].get(part)
        verdict = "" if bar is None else ("met" if min(values) >= bar else "missed")
        print(
            f"{name:<20}{part:<30}{'-' if bar is None else f'{bar:.2f}':>6}  "
            f"{' '.join(f'{value:.3f}' for value in values)}  {verdict}"
        )


def read_bench(data: Path, name: str, *, seed: int, parameters: Mapping[str, Any]) -> Bench:
    problem = attach_layer_times(
        read_problem(data / "problems" / f"{name}.json"),
        layer_times_csv=read_text(data / "profiles" / "layer_times.csv"),
        batch_limits_json=read_text(data / "profiles" / "kv_and_batch_limits.json"),
        name_hint="layer_times.csv",
    )
    path = data / "problems" / f"{name}.published.json"
    placements = published_placements_from_text(
        read_text(path), name_hint=str(path), num_layers=problem.model.num_layers
    )
    chosen = parameters["instances"][name]["placement"]
    return Bench(
        name=name,
        problem=problem,
        published=placements[chosen].placement,
        seed=seed,
        parameters=parameters,
    )


def ratios_of(bench: Bench, parts: list[str]) -> dict[str, float]:
    """What each part asked for gains; prints the figures that it is of."""
    published = bench.show("", "published plan and policy", bench.plain(bench.published))
    ratios: dict[str, float] = {}
    if "routing" in parts:
        rate = bench.show(
            "routing",
            "published plan, balanced weights",
            bench.balanced(bench.published, PUBLISHED_POLICY),
        )
        ratios["routing"] = rate / published
    if "greedy" in parts:
        placement = bench.plan(PUBLISHED_POLICY)
        rate = bench.show("greedy", "our plan", bench.balanced(placement, PUBLISHED_POLICY))
        ratios["greedy"] = rate / published
    if "runtime" in parts or "placement" in parts:
        ours = bench.show(
            "runtime", "our plan", bench.balanced(bench.plan(RUNTIME_POLICY), RUNTIME_POLICY)
        )
        theirs = bench.show(
            "placement", "published plan", bench.balanced(bench.published, RUNTIME_POLICY)
        )
        ratios["runtime"] = ours / published
        ratios["placement"] = ours / theirs
    limited = bench.parameters["instances"][bench.name].get("hop_limited")
    if "hop_limited" in parts and limited is not None:
        placement = bench.plan(PUBLISHED_POLICY, max_hops=limited["max_hops"])
        what = f"{limited['max_hops']} hops"
        plain = bench.show("hop_limited", f"{what}, plain weights", bench.plain(placement))
        rate = bench.show(
            "hop_limited",
            f"{what}, balanced weights",
            bench.balanced(placement, PUBLISHED_POLICY),
        )
        ratios["hop_limited, same plan"] = rate / plain
        ratios["hop_limited, published plan"] = rate / published
    return ratios


if __name__ == "__main__":
    main()
