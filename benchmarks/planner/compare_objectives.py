"""Our plan against the baselines on generated clusters, all under our runtime's policy.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.compare_objectives [--seconds S]
        [--numbers N ...]

For each cluster of compare_objectives.json: simulated decode tokens/s of our plan and of every
baseline, with balanced weights and the same KV rule, means over seeds that the search did not use;
the ratio to the best baseline, and the CPU seconds of the search. A "small" model has 32 layers of
0.44 GB, which a few machines of every kind hold: pipelines per kind are hard to beat. A "whole"
model has 28 of 0.22 GB and fits each single machine. Baselines are also pipelines per kind with
one more of the nodes that are left, and as many replicas as each kind holds.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.commands.files import read_text
from planner.domain.model_spec import ModelSpec
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.generate import generated_cluster
from planner.objectives.trial import Span, Trials
from planner.placers.base import NeverCancelled
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import GUARDS, compute_plan

PARAMETERS = Path(__file__).with_name("compare_objectives.json")
MODELS = {
    "small": ModelSpec(
        name="small",
        num_layers=32,
        activation_bytes_per_token=8192,
        token_bytes=2,
        bytes_per_layer=0.44e9,
    ),
    "whole": ModelSpec(
        name="whole",
        num_layers=28,
        activation_bytes_per_token=6144,
        token_bytes=2,
        bytes_per_layer=0.22e9,
    ),
}
_LARGE_LAYER_BYTES = 1.53e9
_HALF = 0.5  # of a node's memory may hold weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU for every plan")
    parser.add_argument("--numbers", type=int, nargs="+", help="which clusters, from 0")
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parsed = parser.parse_args()
    parameters = json.loads(read_text(parsed.parameters))
    print(f"{'cluster':<34}{'ours':>9}{'s':>7}{'simulated':>11}{'ratio':>8}  baselines")
    worst = float("inf")
    for number in parsed.numbers or range(len(parameters["clusters"])):
        cluster = parameters["clusters"][number]
        worst = min(worst, compared(cluster, parameters, seconds=parsed.seconds))
    print(f"worst ratio {worst:.3f}")


def compared(cluster: Mapping[str, Any], parameters: Mapping[str, Any], *, seconds: float) -> float:
    """Ours over the best baseline; prints both."""
    problem = generated_cluster(
        num_nodes=cluster["num_nodes"], num_regions=cluster["num_regions"], seed=cluster["seed"]
    )
    if "model" in cluster:
        problem = with_model(problem, MODELS[cluster["model"]])
    started_s = time.process_time()
    plan = compute_plan(
        problem,
        options=PlanOptions(time_limit_s=seconds),
        progress=lambda _: None,
        cancel=NeverCancelled(),
        clock=time.process_time,
    )
    taken_s = time.process_time() - started_s
    trials = Trials(problem, PlanOptions())
    span = Span(warm_up=parameters["warm_up_lifetimes"], window=parameters["window_lifetimes"])
    placements = {name: place(problem) for name, place in (BASELINES | GUARDS).items()}
    rates = {}
    for name, placement in {"ours": plan.placement, **placements}.items():
        if placement is not None:
            trial = trials.estimated(placement, placer=name)
            figures = trials.simulated(trial, seeds=parameters["seeds"], span=span)
            rates[name] = 0.0 if figures is None else figures.decode_tokens_per_s
    ours = rates.pop("ours")
    ratio = ours / max(rates.values())
    what = f"{cluster['num_nodes']} nodes, {cluster['num_regions']} regions"
    what += f", {cluster['model']}" if "model" in cluster else ""
    simulated = plan.forecast is not None and plan.forecast.simulated is not None
    shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    print(
        f"{what:<34}{ours:>9.1f}{taken_s:>7.1f}{'yes' if simulated else 'no':>11}{ratio:>8.3f}  "
        f"{shown}; by {plan.placer}",
        flush=True,
    )
    return ratio


def with_model(problem: Problem, model: ModelSpec) -> Problem:
    """A node holds as many layers as half its memory has room for, each as fast as before by
    size, and keeps KV in the rest.
    """
    return replace(
        problem,
        name=f"{problem.name}-{model.name}",
        model=model,
        compute_profiles={
            name: _small_profile(profile, model)
            for name, profile in problem.compute_profiles.items()
        },
    )


def _small_profile(profile: ComputeProfile, model: ModelSpec) -> ComputeProfile:
    size = model.bytes_per_layer / _LARGE_LAYER_BYTES
    most = min(model.num_layers, int(_HALF * profile.vram_bytes / model.bytes_per_layer))
    tokens = profile.tokens_per_s
    full_kv = profile.kv_capacity_token_layers[0] + _LARGE_LAYER_BYTES * _kv_per_byte(profile)

    def speed(layers: int) -> float:
        """Between the larger model's layers of the same size, linear in 1 / layers."""
        alike = min(max(layers * size, 1.0), float(len(tokens)))
        below = min(int(alike), len(tokens) - 1) if len(tokens) > 1 else 1
        above = min(below + 1, len(tokens))
        share = 0.0 if above == below else alike - below
        return (1 - share) * tokens[below - 1] + share * tokens[above - 1]

    return replace(
        profile,
        max_layers=most,
        tokens_per_s=tuple(speed(layers) for layers in range(1, most + 1)),
        kv_capacity_token_layers=tuple(
            full_kv - layers * model.bytes_per_layer * _kv_per_byte(profile)
            for layers in range(1, most + 1)
        ),
    )


def _kv_per_byte(profile: ComputeProfile) -> float:
    """Token-layers of KV room that a byte of memory holds."""
    kv = profile.kv_capacity_token_layers
    return (kv[0] - kv[1]) / _LARGE_LAYER_BYTES


if __name__ == "__main__":
    main()
