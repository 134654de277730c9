"""What sampling costs for each row: the whole step at once, against one row after another.

python benchmarks/serving/sampling.py [--vocabulary 128256] [--repeats 5] [--device cpu]

For one core: OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/serving/sampling.py
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from runtime.engine.host_memory import HostMemory, host_memory
from runtime.engine.noise import mixed
from runtime.engine.sampled_row import SampledRow
from runtime.engine.sampling_batch import SamplingBatch
from runtime.free_memory import keep_freed_memory
from runtime.protocol.data import Sampling

PLAIN = Sampling(temperature=0.8, top_p=1.0, top_k=0, seed=1, max_tokens=1)
KINDS = {
    "greedy": replace(PLAIN, temperature=0.0),
    "temperature": PLAIN,
    "top_k + top_p": replace(PLAIN, top_k=50, top_p=0.9),
    "top_p": replace(PLAIN, top_p=0.9),
}
ROWS = (1, 8, 32)
SPREAD = 3.0  # standard deviation of the logits
Sample = Callable[[Tensor, list[SampledRow]], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    keep_freed_memory()  # as a stage does
    device = torch.device(options.device)
    memory = host_memory(device)
    # CPU time is what other programs on the machine change least; a GPU works outside of it
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    print(
        f"{device}, {torch.get_num_threads()} threads, vocabulary {options.vocabulary}; "
        f"ms per row (median of {options.repeats}), and the median of the ratios"
    )
    print(f"{'':16} {'rows':>4} {'step at once':>13} {'row by row':>11} {'ratio':>6}")
    for kind, rows, times in measured(options, memory, clock):
        at_once, one_by_one = (statistics.median(each) for each in zip(*times, strict=True))
        ratio = statistics.median(theirs / ours for ours, theirs in times)
        print(f"{kind:16} {rows:4} {at_once:13.2f} {one_by_one:11.2f} {ratio:6.1f}")


def measured(
    options: argparse.Namespace, memory: HostMemory, clock: Callable[[], float]
) -> Iterator[tuple[str, int, list[tuple[float, float]]]]:
    """Kind, rows, and ms per row of both ways in each repeat; the first repeat is left out."""

    def at_once(logits_RV: Tensor, rows: list[SampledRow]) -> object:
        return SamplingBatch(rows).sample(logits_RV, memory)

    for count in ROWS:
        generator = torch.Generator().manual_seed(count)
        logits_RV = torch.randn(count, options.vocabulary, generator=generator) * SPREAD
        logits_RV = logits_RV.to(options.device)
        for kind, sampling in KINDS.items():
            rows = [
                SampledRow(sampling=replace(sampling, seed=place), position=100 + place)
                for place in range(count)
            ]
            times = [
                (
                    timed(at_once, logits_RV, rows, clock),
                    timed(row_by_row, logits_RV, rows, clock),
                )
                for _ in range(options.repeats + 1)
            ]
            yield kind, count, times[1:]


def timed(
    sample: Sample, logits_RV: Tensor, rows: list[SampledRow], clock: Callable[[], float]
) -> float:
    began_s = clock()
    sample(logits_RV, rows)
    return (clock() - began_s) * 1000 / len(rows)


def row_by_row(logits_RV: Tensor, rows: list[SampledRow]) -> list[int]:
    """As rows were sampled before: each by itself on the CPU, in float64, with a whole sort."""
    best_R = logits_RV.max(-1).indices.tolist()
    return [
        best if row.is_greedy else sampled_alone(logits_V, row)
        for best, logits_V, row in zip(best_R, logits_RV, rows, strict=True)
    ]


def sampled_alone(logits_V: Tensor, row: SampledRow) -> int:
    sampling = row.sampling
    kept_V = logits_V.cpu().double() / sampling.temperature
    if sampling.top_k:
        values, indices = kept_V.topk(sampling.top_k)
        kept_V = torch.full_like(kept_V, -torch.inf).scatter(0, indices, values)
    if sampling.top_p < 1:
        values_V, indices_V = kept_V.sort(descending=True, stable=True)
        probabilities_V = values_V.softmax(0)
        is_surplus_V = probabilities_V.cumsum(0) - probabilities_V >= sampling.top_p
        is_surplus_V[0] = False
        kept_V = kept_V.index_fill(0, indices_V[is_surplus_V], -torch.inf)
    seed = mixed(sampling.seed, row.position) - (1 << 63)
    noise_V = torch.empty_like(kept_V).exponential_(generator=torch.Generator().manual_seed(seed))
    return int((kept_V - noise_V.log()).argmax())


if __name__ == "__main__":
    main()
