"""The third paper's experiments in simulation: degrees, and schedulers among unequal instances.

    python -m benchmarks.instances.paper [--rings pcie|nvlink] [--seeds N ...]

Prints Algorithm 1's ranking of tensor-parallel degrees on 8 V100 (with the paper's bytes of a
token, which know no grouped queries, and with the right ones) beside continuous batching, and how
often Algorithm 1 gives the paper's order; then what every scheduler makes of requests at rising
rates (sections 5.2, 5.3), the paper's figures beside. Times are of the latency model with
parameters from data sheets; nothing here ran on such GPUs.
"""

import argparse
import math
import random
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.instances.scheduling import SchedulingOutcome, simulate_instances
from planner.latency_model import Fit, LatencyModel
from planner.placers.instances import (
    DegreeEstimate,
    Machine,
    WholeModel,
    degree_estimates,
    kv_room_tokens,
)
from planner.routers.base import RequestSize
from planner.routers.load_aware import InstanceSpeed, LoadAwareInstances
from planner.simulator.instances import InstanceSpec
from planner.workload.request import Lengths

PARAMETERS = Path(__file__).with_name("paper.toml")
PAPER_ORDER = (2, 4, 1, 8)  # degrees of tensor parallelism, most tokens/s first
_ELEMENT_BYTES = 2
_DEGREES = (1, 2, 4, 8)
_ORDER_SEEDS = 20
_SMALL, _LARGE = "Llama-3-8B", "Qwen-14B"


def read_parameters(path: Path = PARAMETERS, *, rings: str = "pcie") -> dict[str, Any]:
    """All of the file, with what GPUs of one instance sum over chosen: a key of `rings`."""
    parameters = tomllib.loads(path.read_text())
    for name, card in parameters["gpus"].items():
        if rings not in card["rings"]:
            raise SystemExit(f"{path}: gpus.{name} knows no rings {rings!r}")
        card["ring"] = card["rings"][rings]
    return parameters


def latency_of(parameters: Mapping[str, Any], gpu: str, model: str, degree: int) -> LatencyModel:
    """A roofline: computing, reading weights and keys, summing over the ring; by its shares."""
    card, sizes, step = parameters["gpus"][gpu], parameters["models"][model], parameters["step"]
    bytes_per_s = degree * card["bytes_per_s"] * card["bytes_share"]
    attention_per_s = degree * card["bytes_per_s"] * card["attention_share"]
    flops = degree * card["flops"] * card["flops_share"]
    compute_s, sum_s, sums_s = 2 * sizes["parameters"] / flops, 0.0, 0.0
    if degree > 1:
        sums = 2 * sizes["num_layers"]  # one after attention, one after the MLP
        row_bytes = sizes["hidden_size"] * _ELEMENT_BYTES * 2 * (degree - 1) / degree
        sum_s = sums * row_bytes / card["ring"]["bytes_per_s"][str(degree)]
        sums_s = sums * card["ring"]["latency_s"][str(degree)]
    heads = sizes[card["attention_reads"]]  # a kernel may read keys once per query head
    kv_bytes = 2 * sizes["num_layers"] * heads * sizes["head_size"] * _ELEMENT_BYTES
    weights_s = sizes["parameters"] * _ELEMENT_BYTES / bytes_per_s
    base_s = step["base_s"] + sums_s

    def fit(*terms: float) -> Fit:
        both, per_request, per_token, base = terms
        return Fit(
            parameters=(both, per_request, per_token, base),
        )

    return LatencyModel(
        prefill=fit(compute_s + sum_s, step["request_s"], 0.0, base_s + weights_s),
        decode=fit(
            kv_bytes / attention_per_s,
            step["decode_compute_share"] * compute_s + sum_s + step["request_s"],
            0.0,
            base_s + weights_s,
        ),
    )


def model_of(
    parameters: Mapping[str, Any], name: str, *, grouped_queries: bool = True
) -> WholeModel:
    """Without `grouped_queries`, with the paper's 2 l h bytes of a token."""
    sizes = parameters["models"][name]
    return WholeModel(
        num_layers=sizes["num_layers"],
        weights_bytes=sizes["parameters"] * _ELEMENT_BYTES,
        query_heads=sizes["query_heads"],
        kv_heads=sizes["kv_heads"] if grouped_queries else sizes["query_heads"],
        head_size=sizes["head_size"],
        kv_element_bytes=_ELEMENT_BYTES,
    )


def lengths_of(
    parameters: Mapping[str, Any], model: str, count: int, *, seed: int
) -> list[Lengths]:
    shape, chance = parameters["lengths"][model], random.Random(seed)

    def draw(mean: float, sigma: float) -> int:
        drawn = chance.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)
        return max(4, min(int(shape["most_tokens"]), round(drawn)))

    return [
        Lengths(
            prompt_tokens=draw(shape["mean_input_tokens"], shape["sigma_input"]),
            output_tokens=draw(shape["mean_output_tokens"], shape["sigma_output"]),
        )
        for _ in range(count)
    ]


def degrees_of(
    parameters: Mapping[str, Any], *, seed: int, grouped_queries: bool
) -> tuple[DegreeEstimate, ...]:
    """Algorithm 1 on 8 V100 with a sample of requests, the fastest degree first."""
    most = parameters["lengths"][_SMALL]["most_tokens"]
    return degree_estimates(
        _eight_v100(parameters),
        model_of(parameters, _SMALL, grouped_queries=grouped_queries),
        lengths_of(parameters, _SMALL, parameters["sample"], seed=seed),
        longest=Lengths(prompt_tokens=most, output_tokens=most),
    )


def count_orders(parameters: Mapping[str, Any], *, seeds: int) -> Counter[tuple[int, ...]]:
    """How often each order of degrees comes out of Algorithm 1, with the paper's bytes."""
    return Counter(
        tuple(one.degree for one in degrees_of(parameters, seed=seed, grouped_queries=False))
        for seed in range(1, seeds + 1)
    )


def rank_degrees(parameters: Mapping[str, Any], *, seed: int) -> None:
    machine = _eight_v100(parameters)
    print(f"\nseed {seed}: 8 V100, {_SMALL}, tokens/s by degree, most first (paper: 2, 4, 1, 8)")
    for words, grouped in (("2 l h bytes a token, as printed", False), ("by KV heads", True)):
        found = degrees_of(parameters, seed=seed, grouped_queries=grouped)
        told = ", ".join(f"t={one.degree} {one.tokens_per_s:.0f}" for one in found)
        print(f"  Algorithm 1, {words}: {told}")
        model = model_of(parameters, _SMALL, grouped_queries=grouped)
        running = sorted(
            ((_continuous(machine, model, t, seed, parameters), t) for t in _DEGREES),
            reverse=True,
        )
        told = ", ".join(f"t={t} {tokens_per_s:.0f}" for tokens_per_s, t in running)
        print(f"  continuous batching, {words}: {told}", flush=True)


def _eight_v100(parameters: Mapping[str, Any]) -> Machine:
    return Machine(
        gpus=8,
        gpu_memory_bytes=parameters["gpus"]["V100"]["memory_bytes"],
        latency={t: latency_of(parameters, "V100", _SMALL, t) for t in _DEGREES},
        **parameters["memory"],
    )


def _continuous(
    machine: Machine,
    model: WholeModel,
    degree: int,
    seed: int,
    parameters: Mapping[str, Any],
) -> float:
    """All instances get the same requests at once, as in the paper's section 5.1."""
    spec = InstanceSpec(
        latency=machine.latency[degree],
        kv_room_tokens=kv_room_tokens(machine, model, degree=degree),
        most_requests=machine.most_requests,
    )
    share = lengths_of(parameters, _SMALL, 1000 * degree, seed=seed)
    arrivals = [(0.0, one) for one in share]
    alone = simulate_instances({"one": spec}, arrivals, choose=lambda number, length: "one")
    return alone.tokens_per_s * machine.gpus / degree


def run_schedulers(
    parameters: Mapping[str, Any],
    specs: Mapping[str, InstanceSpec],
    *,
    model: str,
    weights: Sequence[float],
    rate_per_s: float,
    seed: int,
) -> dict[str, SchedulingOutcome]:
    """RR, single instance, memory-based, load-aware, weighted RR, as in section 5.2."""
    count, at_s = len(specs), 0.0
    chance, arrivals = random.Random(seed + 1), []
    for length in lengths_of(parameters, model, parameters["requests"], seed=seed):
        arrivals.append((at_s, length))
        at_s += 0.0 if math.isinf(rate_per_s) else chance.expovariate(rate_per_s)
    most = parameters["lengths"][model]["most_tokens"]
    load_aware = partial(_load_aware, parameters, specs, arrivals, most_tokens=most, seed=seed)
    return {
        "RR": _fixed(specs, arrivals, [1.0] * count, seed=seed),
        "single": _fixed(specs, arrivals, [1.0] + [0.0] * (count - 1), seed=seed),
        "memory": load_aware(by_time=False),
        "load-aware": load_aware(by_time=True),
        "WRR": _fixed(specs, arrivals, weights, seed=seed),
    }


def compare_schedulers(
    parameters: Mapping[str, Any],
    specs: Mapping[str, InstanceSpec],
    *,
    title: str,
    model: str,
    weights: Sequence[float],
    seed: int,
) -> None:
    print(
        f"\nseed {seed}: {title}: tokens/s (share of the time by which one instance ended sooner)"
    )
    for rate in parameters["rates_per_s"]:
        outcomes = run_schedulers(
            parameters, specs, model=model, weights=weights, rate_per_s=rate, seed=seed
        )
        base = outcomes["RR"].tokens_per_s
        told = ", ".join(
            f"{name} {one.tokens_per_s:.0f} ({one.tokens_per_s / base - 1:+.1%}, spread "
            f"{one.finish_spread:.0%})"
            for name, one in outcomes.items()
        )
        print(f"  {rate:g} requests/s: {told}", flush=True)


def _fixed(
    specs: Mapping[str, InstanceSpec],
    arrivals: Sequence[tuple[float, Lengths]],
    weights: Sequence[float],
    *,
    seed: int,
) -> SchedulingOutcome:
    """Drawn with these probabilities, as the paper says of RR and WRR."""
    chance, names = random.Random(seed + 2), list(specs)
    return simulate_instances(
        specs, arrivals, choose=lambda number, length: chance.choices(names, weights)[0]
    )


def _load_aware(
    parameters: Mapping[str, Any],
    specs: Mapping[str, InstanceSpec],
    arrivals: Sequence[tuple[float, Lengths]],
    *,
    by_time: bool,
    most_tokens: int,
    seed: int,
) -> SchedulingOutcome:
    """Answers' lengths are predicted by drawing from their normal distribution, as in the paper."""
    outputs = [length.output_tokens for _, length in arrivals]
    mean = sum(outputs) / len(outputs)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in outputs) / len(outputs))
    chance = random.Random(seed + 3)
    router = LoadAwareInstances(
        {
            name: InstanceSpeed(
                kv_room_tokens=spec.kv_room_tokens,
                latency=spec.latency if by_time else None,
                most_requests=spec.most_requests,
            )
            for name, spec in specs.items()
        },
        theta=parameters["theta"],
        usage_limit=math.inf,
    )

    def choose(number: int, length: Lengths) -> str:
        predicted = max(1, min(most_tokens, round(chance.gauss(mean, deviation))))
        size = RequestSize(prompt_tokens=length.prompt_tokens, predicted_output_tokens=predicted)
        chosen = router.choose(number, size)
        if chosen is None:
            raise RuntimeError("nothing is masked here")
        return chosen

    return simulate_instances(specs, arrivals, choose=choose, ended=router.end)


def spec_of(
    parameters: Mapping[str, Any], gpu: str, model: str, *, degree: int, gpus: int
) -> InstanceSpec:
    latency = latency_of(parameters, gpu, model, degree)
    machine = Machine(
        gpus=gpus,
        gpu_memory_bytes=parameters["gpus"][gpu]["memory_bytes"],
        latency={degree: latency},
        **parameters["memory"],
    )
    room = kv_room_tokens(machine, model_of(parameters, model), degree=degree)
    return InstanceSpec(latency=latency, kv_room_tokens=room, most_requests=machine.most_requests)


def two_v100(parameters: Mapping[str, Any]) -> dict[str, InstanceSpec]:
    """Section 5.2: an instance of four GPUs beside one of a single GPU."""
    return {
        f"V100 t={degree}": spec_of(parameters, "V100", _SMALL, degree=degree, gpus=8)
        for degree in (4, 1)
    }


def with_a800(parameters: Mapping[str, Any]) -> dict[str, InstanceSpec]:
    """Section 5.3: four instances of two V100 and one of an A800."""
    small = spec_of(parameters, "V100", _LARGE, degree=2, gpus=8)
    large = spec_of(parameters, "A800", _LARGE, degree=1, gpus=1)
    return {f"V100-{number} t=2": replace(small) for number in range(4)} | {"A800": large}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parameters", type=Path, default=PARAMETERS, metavar="FILE.toml")
    parser.add_argument("--rings", default="pcie", help="what a V100's instance sums over")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args(argv)
    parameters = read_parameters(arguments.parameters, rings=arguments.rings)
    print(f"Algorithm 1's orders of degrees with seeds 1 to {_ORDER_SEEDS} (paper: 2, 4, 1, 8):")
    for order, times in count_orders(parameters, seeds=_ORDER_SEEDS).most_common():
        print(f"  {', '.join(map(str, order))}: {times} times")
    for seed in arguments.seeds:
        rank_degrees(parameters, seed=seed)
        compare_schedulers(
            parameters,
            two_v100(parameters),
            title="V100 t=4 beside t=1, Llama-3-8B (paper: load-aware +122.5 % over RR at 24)",
            model=_SMALL,
            weights=[4.0, 1.0],
            seed=seed,
        )
        compare_schedulers(
            parameters,
            with_a800(parameters),
            title="four V100 t=2 beside an A800, Qwen-14B (paper: +33.6 % at 16)",
            model=_LARGE,
            weights=[1.0, 1.0, 1.0, 1.0, 2.0],
            seed=seed,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
