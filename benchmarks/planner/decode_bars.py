"""What plans for decode throughput serve, against the published plans on the same machines.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.decode_bars DATA_FOLDER
        [--instances NAME ...] [--parts PART ...] [--parameters FILE] [--output FILE.json]

DATA_FOLDER has problems/ and profiles/ as the Helix artifact published them. Per instance and seed,
which is the search's and that of the simulated lengths, sustained decode tokens/s of

    routing      the published placement, balanced weights for plain max-flow weights
    greedy       our plan for the published policy against the published one, both greedy
    runtime      our plan under our runtime's policy against the published plan and policy, its TTFT
                 too; and, "placement", against the published placement, with balanced weights,
                 under our policy; and the proven bound over our plan
    hop_limited  with a hop limit, greedy: balanced weights for plain max-flow weights and nothing
                 else changed, on the plan of most flow and on ours ("weights alone"); ours with our
                 router too, against plain weights on the same plan; and against the published plan

Plans come from `compute_plan` with objective "decode" in the time limit, in seconds of CPU, one
after the other. With --output every part is written when it is done, and one that is in the file
already, of the same parameters, is not run again: a run that was cut off goes on.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.helix.weights import balanced_weights
from benchmarks.simulator.published_flow import published_weights, with_shared_cards
from planner.bounds.served import served_bounds_tokens_per_s
from planner.commands.files import read_problem, read_text
from planner.domain.placement import Placement
from planner.domain.plan_forecast import Objective
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import published_placements_from_text
from planner.simulator.forecast import Forecast
from planner.simulator.simulate import SimulationOptions, simulate
from planner.timing import attach_layer_times
from planner.workload.demand import Backlog
from planner.workload.lengths import published_lengths

PARAMETERS = Path(__file__).with_name("decode_bars.json")
TTFT = "runtime, TTFT p50"  # a ratio that is better the smaller
PARTS = ("routing", "greedy", "runtime", "hop_limited")


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

    def reweighted(self, placement: Placement) -> Forecast:
        """As `plain`, with nothing but the weights changed: the balanced flow's."""
        weights = balanced_weights(self.problem, placement, partial_inference=False)
        card = self.parameters["card_bytes_per_s"]
        problem = with_shared_cards(self.problem, weights, card_bytes_per_s=card)
        return self._simulated(problem, placement, weights, PUBLISHED_POLICY, router="published")

    def plan(
        self,
        policy: ServingPolicy,
        *,
        max_hops: int | None = None,
        objective: Objective = "decode",
    ) -> Placement:
        return compute_plan(
            self.problem,
            options=PlanOptions(
                time_limit_s=self.parameters["time_limit_s"],
                objective=objective,
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
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parsed = parser.parse_args()
    parameters = json.loads(read_text(parsed.parameters))
    done = Done.read(parsed.output, parameters)
    steps = [
        (name, seed, part)
        for name in parsed.instances or parameters["instances"]
        for seed in parameters["seeds"]
        for part in parsed.parts
    ]
    print(f"{'instance':<20}{'seed':>5}  {'part':<12}{'':<34}{'tokens/s':>9}{'TTFT':>8}{'TPOT':>8}")
    started_s = time.monotonic()
    ratios: dict[tuple[str, str], list[float]] = {}
    for number, (name, seed, part) in enumerate(steps, start=1):
        found = done.ratios(name, seed, part)
        if found is None:
            bench = read_bench(parsed.data, name, seed=seed, parameters=parameters)
            found = ratios_of(bench, part)
            done.add(name, seed, part, found)
        for what, ratio in found.items():
            ratios.setdefault((name, what), []).append(ratio)
        print(
            f"{number} of {len(steps)} done after {time.monotonic() - started_s:.0f} s: "
            f"{name}, seed {seed}, {part}",
            file=sys.stderr,
            flush=True,
        )
    print(f"{'instance':<20}{'part':<30}{'bar':>6}  ratio of every seed")
    for (name, part), values in ratios.items():
        known = parameters["instances"][name]
        limited = known.get("hop_limited", {}).get("bar")
        bar = limited if part.startswith("hop_limited") else known["bars"].get(part)
        is_met = bar is not None and min(values) >= bar
        if part == TTFT:
            bar, is_met = 1.0, max(values) <= 1.0
        verdict = "" if bar is None else ("met" if is_met else "missed")
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


class Done:
    """The parts done so far, kept in a file where one is given."""

    def __init__(self, path: Path | None, parameters: Mapping[str, Any]) -> None:
        self._path = path
        self._parameters = dict(parameters)
        self._found: dict[str, dict[str, float]] = {}

    @classmethod
    def read(cls, path: Path | None, parameters: Mapping[str, Any]) -> "Done":
        """Raises SystemExit for a file of other parameters, whose parts do not belong here."""
        done = cls(path, parameters)
        if path is not None and path.exists():
            document = json.loads(path.read_text())
            if document["parameters"] != done._parameters:
                raise SystemExit(f"{path} is of other parameters; give another file, or remove it")
            done._found = document["ratios"]
        return done

    def ratios(self, name: str, seed: int, part: str) -> dict[str, float] | None:
        return self._found.get(f"{name}/{seed}/{part}")

    def add(self, name: str, seed: int, part: str, ratios: Mapping[str, float]) -> None:
        self._found[f"{name}/{seed}/{part}"] = dict(ratios)
        if self._path is not None:
            document = {"parameters": self._parameters, "ratios": self._found}
            part_path = self._path.with_suffix(".part")
            part_path.write_text(json.dumps(document, indent=1) + "\n")
            part_path.replace(self._path)


def ratios_of(bench: Bench, part: str) -> dict[str, float]:
    """What a part gains, by reading; prints the figures. Empty where the instance has no such."""
    limited = bench.parameters["instances"][bench.name].get("hop_limited")
    if part == "hop_limited" and limited is None:
        return {}
    plain = bench.plain(bench.published)
    published = bench.show(part, "published plan and policy", plain)
    if part == "routing":
        balanced = bench.balanced(bench.published, PUBLISHED_POLICY)
        return {part: bench.show(part, "published plan, balanced weights", balanced) / published}
    if part == "greedy":
        balanced = bench.balanced(bench.plan(PUBLISHED_POLICY), PUBLISHED_POLICY)
        return {part: bench.show(part, "our plan", balanced) / published}
    if part == "runtime":
        served = bench.balanced(bench.plan(RUNTIME_POLICY), RUNTIME_POLICY)
        rate = bench.show(part, "our plan", served)
        same = bench.balanced(bench.published, RUNTIME_POLICY)
        *_, most = served_bounds_tokens_per_s(bench.problem, policy=RUNTIME_POLICY)
        print(f"{'':<37}{'no placement serves more than':<34}{most:>9.1f}", flush=True)
        return {
            part: rate / published,
            "runtime, bound over our plan": most / rate,
            TTFT: served.ttft.p50_s / plain.ttft.p50_s,
            "placement": rate / bench.show(part, "published plan", same),
        }
    what = f"{limited['max_hops']} hops"
    largest = bench.plan(PUBLISHED_POLICY, max_hops=limited["max_hops"], objective="flow")
    weighed = bench.show(part, f"{what}, most flow, plain weights", bench.plain(largest))
    evened = bench.show(part, f"{what}, most flow, balanced", bench.reweighted(largest))
    placement = bench.plan(PUBLISHED_POLICY, max_hops=limited["max_hops"])
    plain_rate = bench.show(part, f"{what}, plain weights", bench.plain(placement))
    evened_rate = bench.show(part, f"{what}, balanced weights alone", bench.reweighted(placement))
    rate = bench.show(part, f"{what}, our router too", bench.balanced(placement, PUBLISHED_POLICY))
    return {
        f"{part}, most flow": evened / weighed,
        f"{part}, weights alone": evened_rate / plain_rate,
        f"{part}, our router too": rate / plain_rate,
        f"{part}, published plan": rate / published,
    }


if __name__ == "__main__":
    main()
