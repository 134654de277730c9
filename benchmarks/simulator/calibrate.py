"""Holds the simulator against published figures of the same placements, policies and workload.

    OMP_NUM_THREADS=1 python -m benchmarks.simulator.calibrate DATA_FOLDER [--seeds 1 2]

DATA_FOLDER has problems/ and profiles/ as the Helix artifact published them. First the artifact's
own offline runs (A*: its feeder, router, weights and window; two with its links changed), then a
backlog without ramp under five policies, against an earlier study of the same cases:

    A published policy, published weights    B published policy, balanced weights
    C B + grouped messages, decode lane, decode cap
    D balanced weights, chunks of 250, grouped messages, decode lane    E D + decode cap

The last line says how fast it went, in simulated seconds per second of CPU.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.helix.offline_feeder import OfflineFeeder
from benchmarks.helix.weights import balanced_weights
from benchmarks.simulator.published_flow import published_weights, with_shared_cards
from planner.commands.files import read_problem, read_text
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
from planner.serialization import published_placements_from_text
from planner.simulator.simulate import SimulationOptions, simulate
from planner.timing import attach_layer_times
from planner.workload.demand import Backlog
from planner.workload.lengths import published_lengths

PARAMETERS = Path(__file__).with_name("calibration.json")
# In the study tokens came back to the first stage by way of the coordinator, and caps were R / 4.
STUDIED_POLICY = replace(
    RUNTIME_POLICY, return_path="coordinator", decode_cap_divisor=4, measured_micro_batches=None
)
POLICIES: dict[str, ServingPolicy] = {
    "A": PUBLISHED_POLICY,
    "B": PUBLISHED_POLICY,
    "C": replace(
        PUBLISHED_POLICY,
        decode_cap_divisor=4,
        messages="grouped",
        transmission="decode_first",
    ),
    "D": replace(STUDIED_POLICY, decode_cap_divisor=None),
    "E": STUDIED_POLICY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published placement on its problem, with measured times."""

    problem: Problem
    placement: Placement
    partial_inference: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA_FOLDER")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parsed = parser.parse_args()
    parameters = json.loads(read_text(parsed.parameters))
    print(
        f"{'problem / placement':<42}{'policy':>13}{'expected':>10}{'ours':>9}{'ratio':>8}  seeds"
    )
    started = time.process_time()
    simulated_s = 0.0
    for row in parameters["published"]["rows"]:
        case = read_case(parsed.data, row)
        policy = replace(PUBLISHED_POLICY, **row.get("policy", {}))
        rates = published_rates(case, parameters, policy=policy, seeds=parsed.seeds)
        print_row(
            row, row.get("policy", {}).get("transmission", "A*"), row["decode_tokens_per_s"], rates
        )
        simulated_s += seconds_of(parameters["published"]) * len(rates)
    for row in parameters["sustained"]["rows"]:
        case = read_case(parsed.data, row)
        for letter, expected in row["decode_tokens_per_s"].items():
            rates = sustained_rates(case, letter, parameters, seeds=parsed.seeds)
            print_row(row, letter, expected, rates)
            simulated_s += seconds_of(parameters["sustained"]) * len(rates)
    cpu_s = time.process_time() - started
    print("expected: of A* published or got by running the artifact, of A to E the study's")
    print(f"{simulated_s:.0f} simulated s in {cpu_s:.1f} CPU s: {simulated_s / cpu_s:.0f} per s")


def read_case(data: Path, row: dict[str, Any]) -> Case:
    problem = attach_layer_times(
        read_problem(data / "problems" / f"{row['problem']}.json"),
        layer_times_csv=read_text(data / "profiles" / "layer_times.csv"),
        batch_limits_json=read_text(data / "profiles" / "kv_and_batch_limits.json"),
        name_hint="layer_times.csv",
    )
    published = data / "problems" / f"{row['problem']}.published.json"
    placements = published_placements_from_text(
        read_text(published), name_hint=str(published), num_layers=problem.model.num_layers
    )
    return Case(
        problem=problem,
        placement=placements[row["placement"]].placement,
        partial_inference=row.get("partial_inference", False),
    )


def published_rates(
    case: Case, parameters: dict[str, Any], *, policy: ServingPolicy, seeds: Sequence[int]
) -> list[float]:
    """Decode tokens/s of the artifact's offline runs, one for each seed of lengths."""
    card = parameters["card_bytes_per_s"]
    weights = published_weights(
        case.problem,
        case.placement,
        partial_inference=case.partial_inference,
        card_bytes_per_s=card,
    )
    problem = with_shared_cards(case.problem, weights, card_bytes_per_s=card)
    return [
        simulate(
            problem,
            placement=case.placement,
            routing_weights=weights,
            router="published",
            demand=Backlog(lengths=published_lengths(seed)),
            feeder_maker=OfflineFeeder,
            policy=policy,
            partial_inference=case.partial_inference,
            options=options_of(parameters, "published"),
        ).decode_tokens_per_s
        for seed in seeds
    ]


def sustained_rates(
    case: Case, letter: str, parameters: dict[str, Any], *, seeds: Sequence[int]
) -> list[float]:
    """Decode tokens/s of a backlog under one of the policies."""
    card = parameters["card_bytes_per_s"]
    partial = case.partial_inference
    published = published_weights(
        case.problem, case.placement, partial_inference=partial, card_bytes_per_s=card
    )
    problem = with_shared_cards(case.problem, published, card_bytes_per_s=card)
    weights = (
        published
        if letter == "A"
        else balanced_weights(case.problem, case.placement, partial_inference=partial)
    )
    return [
        simulate(
            problem if letter == "A" else case.problem,
            placement=case.placement,
            routing_weights=weights,
            router="published" if letter == "A" else "iwrr",
            demand=Backlog(lengths=published_lengths(seed)),
            policy=POLICIES[letter],
            partial_inference=partial,
            options=options_of(parameters, "sustained"),
        ).decode_tokens_per_s
        for seed in seeds
    ]


def options_of(parameters: dict[str, Any], part: str) -> SimulationOptions:
    return SimulationOptions(
        warm_up_s=parameters[part]["warm_up_s"],
        window_s=parameters[part]["window_s"],
        page_tokens=1,
        fixed_output_tokens=parameters["fixed_output_tokens"],
    )


def seconds_of(part: dict[str, Any]) -> float:
    return float(part["warm_up_s"] + part["window_s"])


def print_row(row: dict[str, Any], label: str, expected: float, rates: list[float]) -> None:
    mean = sum(rates) / len(rates)
    case = f"{row['problem']} / {row['placement']}"
    seeds = " ".join(f"{rate:.1f}" for rate in rates)
    print(f"{case:<42}{label:>13}{expected:>10.1f}{mean:>9.1f}{mean / expected:>8.3f}  {seeds}")


if __name__ == "__main__":
    main()
