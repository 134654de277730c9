"""Times the matrix products of a model's layers on one CPU core.

Run `PYTHONPATH=. python benchmarks/serving/cpu_products.py`. For each number of rows: torch's
product, torch's of weights widened to float32, and the compiled one by each instruction set that
the CPU has. The last column is what reproducible results cost: our product over the fastest of
them all. ONEDNN_MAX_CPU_ISA=AVX512_CORE makes torch act as on a CPU without AVX512-BF16.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.compiled.library import compiled_kernels

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]

_INSTRUCTIONS = ("AVX2", "AVX-512", "AVX512-BF16")  # as Kernels.narrower orders them
# outputs and inputs of one layer's products, and how often a token passes them
_MODELS = {
    "SmolLM2-135M": ([(960, 576), (576, 576), (3072, 576), (576, 1536)], (49152, 576), 30),
    "1B": ([(3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192)], (128256, 2048), 16),
}
_ROWS = (1, 2, 4, 8, 16, 32, 64, 256)
_HEAD_ROWS = 32  # more rows than that never reach the head at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=_MODELS, default="SmolLM2-135M")
    parser.add_argument("--dtype", choices=("bfloat16", "float32", "float16"), default="bfloat16")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    layer, head, layers = _MODELS[arguments.model]
    dtype: torch.dtype = getattr(torch, arguments.dtype)
    print(f"{arguments.model}, {arguments.dtype}, CPU ms of all {layers} layers")
    _print_table(layer, dtype, _ROWS, times=layers, repeats=arguments.repeats)
    print("\nthe head")
    rows = [number for number in _ROWS if number <= _HEAD_ROWS]
    _print_table([head], dtype, rows, times=1, repeats=arguments.repeats)


def _print_table(
    shapes: list[tuple[int, int]],
    dtype: torch.dtype,
    rows: tuple[int, ...] | list[int],
    *,
    times: int,
    repeats: int,
) -> None:
    weights = [torch.randn(outputs, inputs).mul_(0.05).to(dtype) for outputs, inputs in shapes]
    found = compiled_kernels()
    kernels = found.narrower() if found is not None else []
    names = ["torch", "widened", *_INSTRUCTIONS[: len(kernels)]]
    print(f"| rows | {' | '.join(names)} | cost |")
    print("|---" * (len(names) + 2) + "|")
    for number in rows:
        spent_s = dict.fromkeys(names, 0.0)
        for weight_ED in weights:
            rows_TD = torch.randn(number, weight_ED.shape[1]).to(dtype)
            products: list[Product] = [functional.linear, _widened]
            products += [each.multiply for each in kernels]
            taken = _shortest_s(products, rows_TD, weight_ED, repeats=repeats)
            for name, seconds in zip(names, taken, strict=True):
                spent_s[name] += seconds
        columns = " | ".join(f"{1e3 * times * spent_s[name]:.1f}" for name in names)
        cost = spent_s[names[-1]] / min(spent_s.values()) - 1
        print(f"| {number} | {columns} | {cost:+.0%} |", flush=True)


def _widened(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    return functional.linear(rows_TD.float(), weight_ED.float(), bias_E).to(rows_TD.dtype)


def _shortest_s(
    products: list[Product],
    rows_TD: Tensor,
    weight_ED: Tensor,
    *,
    repeats: int,
) -> list[float]:
    """CPU seconds of each, in turns, so that what else the machine does hits all alike."""
    shortest = [float("inf")] * len(products)
    for turn in range(repeats + 1):
        for index, multiply in enumerate(products):
            start = time.thread_time()
            multiply(rows_TD, weight_ED, None)
            if turn > 0:  # the first one warms up
                shortest[index] = min(shortest[index], time.thread_time() - start)
    return shortest


if __name__ == "__main__":
    main()
