"""The load-aware router against the best fixed weights, when more is asked than can be done.

    python -m benchmarks.instances.overload [--seeds N ...]

Simulates three instances of unequal speed and room. For the usage limit of the exponent (1, or none
as in the paper) and the way answers' lengths are expected: output tokens/s against the best of the
swept weights, against round robin, and the finish-time spread; means over the seeds. 2 minutes.
"""

import argparse
import itertools
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.instances.scheduling import SchedulingOutcome, simulate_instances
from planner.domain.problem import Workload
from planner.latency_model import Fit, LatencyModel
from planner.routers.answer_length import AnswerLength, DrawnLength, QuantileLength
from planner.routers.base import InstanceRouter, RequestSize
from planner.routers.instance_choice import make_instance_router
from planner.routers.load_aware import InstanceSpeed, LoadAwareInstances
from planner.simulator.instances import InstanceSpec
from planner.workload.lengths import scaled_lengths
from planner.workload.request import Lengths

MEAN_PROMPT_TOKENS, MEAN_OUTPUT_TOKENS = 220, 180  # ShareGPT's, in the shape of Azure's chats
WORKLOAD = Workload(mean_prompt_tokens=MEAN_PROMPT_TOKENS, mean_output_tokens=MEAN_OUTPUT_TOKENS)
_REQUESTS = 500
_WEIGHTS = tuple(
    {"fast": fast, "middle": middle, "slow": 1.0}
    for fast, middle in ((3, 2), (3.5, 1.9), (4, 2), (4.5, 2.2), (5, 2.5), (6, 2.5))
)


def instance(slowness: float, room_tokens: int) -> InstanceSpec:
    def fit(*terms: float) -> Fit:
        both, per_request, per_token, base = (slowness * term for term in terms)
        return Fit(
            parameters=(both, per_request, per_token, base),
        )

    latency = LatencyModel(prefill=fit(4e-4, 0, 0, 0.016), decode=fit(0, 1.5e-3, 0, 0.016))
    return InstanceSpec(latency=latency, kv_room_tokens=room_tokens)


SPECS = {
    "fast": instance(1, 12_000),
    "middle": instance(1.8, 8_000),
    "slow": instance(3, 6_000),
}
SPEEDS = {
    name: InstanceSpeed(kv_room_tokens=spec.kv_room_tokens, latency=spec.latency)
    for name, spec in SPECS.items()
}


def simulated(
    router: InstanceRouter, expected: AnswerLength, *, rate_per_s: float, seed: int
) -> SchedulingOutcome:
    """`_REQUESTS` with Poisson arrivals; an infinite rate sends all at once."""
    drawn = scaled_lengths(WORKLOAD, seed=seed)
    chance, at_s, arrivals = random.Random(seed), 0.0, []
    for one in itertools.islice(drawn, _REQUESTS):
        arrivals.append((at_s, one))
        at_s += 0.0 if math.isinf(rate_per_s) else chance.expovariate(rate_per_s)

    def choose(number: int, length: Lengths) -> str:
        output = expected.predict("m", "all", max_tokens=None)
        size = RequestSize(prompt_tokens=length.prompt_tokens, predicted_output_tokens=output)
        chosen = router.choose(number, size)
        if chosen is None:
            raise RuntimeError("nothing is masked here")
        return chosen

    def ended(number: int) -> None:
        router.end(number)
        expected.observe("m", "all", arrivals[number][1].output_tokens)

    return simulate_instances(SPECS, arrivals, choose=choose, ended=ended)


def fixed(name: str, weights: Mapping[str, float], *, rate_per_s: float, seed: int) -> float:
    router = make_instance_router(name, speeds=SPEEDS, weights=weights)
    expected = QuantileLength(first_tokens=MEAN_OUTPUT_TOKENS, quantile=0.5)
    return simulated(router, expected, rate_per_s=rate_per_s, seed=seed).output_tokens_per_s


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    seeds = parser.parse_args(argv).seeds
    for rate_per_s in (3.0, 4.0, 6.0, math.inf):
        best = {
            seed: max(
                fixed("weighted_round_robin", weights, rate_per_s=rate_per_s, seed=seed)
                for weights in _WEIGHTS
            )
            for seed in seeds
        }
        turns = {seed: fixed("round_robin", {}, rate_per_s=rate_per_s, seed=seed) for seed in seeds}
        print(f"\n{rate_per_s:g} requests/s; best weights {statistics.mean(best.values()):.0f}/s")
        for limit, way in itertools.product((math.inf, 1.0), ("drawn", "quantile 0.6")):
            found = {
                seed: simulated(
                    LoadAwareInstances(SPEEDS, usage_limit=limit),
                    DrawnLength(first_tokens=MEAN_OUTPUT_TOKENS, rng=random.Random(seed + 1))
                    if way == "drawn"
                    else QuantileLength(first_tokens=MEAN_OUTPUT_TOKENS, quantile=0.6),
                    rate_per_s=rate_per_s,
                    seed=seed,
                )
                for seed in seeds
            }
            rates = {seed: one.output_tokens_per_s for seed, one in found.items()}
            print(
                f"  usage limit {limit:g}, lengths {way}: "
                f"{statistics.mean(rates[seed] / best[seed] for seed in seeds):.3f} of the best "
                f"weights, {statistics.mean(rates[seed] / turns[seed] for seed in seeds):.2f} "
                "times round robin, spread "
                f"{statistics.mean(one.finish_spread for one in found.values()):.0%}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
