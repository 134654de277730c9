"""How far are estimates from data sheets off, where measurements exist?

    python -m benchmarks.instances.roofline LAYER_TIMES.csv

The file is that of the first paper's authors (model, gpu, phase, batch_tokens, time_ms_per_layer).
For each single GPU prints estimate over measurement, for prompts and for decodes, at the mean
context of that paper's workload.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.roofline import LayerShape, data_sheet, roofline_times

_GPUS = {"A100": "A100-40GB", "V100": "V100-16GB", "L4": "L4", "T4": "T4"}
_MODELS = {
    "llama2_70b": LayerShape(
        hidden_size=8192, intermediate_size=28672, query_heads=64, kv_heads=8, head_size=128
    ),
    "llama1_30b": LayerShape(
        hidden_size=6656, intermediate_size=17920, query_heads=52, kv_heads=52, head_size=128
    ),
}
_SIZES = {"prompt": (1000, 2000, 4000), "decode": (2, 10, 30, 100)}
_CONTEXT_TOKENS = 763 + 232 / 2


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("layer_times", type=Path, metavar="LAYER_TIMES.csv")
    path = parser.parse_args(argv).layer_times
    with path.open(newline="", encoding="utf-8") as file:
        measured_s = {
            (row["model"], row["gpu"], row["phase"], int(row["batch_tokens"])): 1e-3
            * float(row["time_ms_per_layer"])
            for row in csv.DictReader(file)
        }
    for model, layer in _MODELS.items():
        for gpu, sheet in _GPUS.items():
            times = roofline_times(data_sheet(sheet), layer, context_tokens=_CONTEXT_TOKENS)
            told = []
            for phase, sizes in _SIZES.items():
                for size in sizes:
                    seen_s = measured_s.get((model, gpu, phase, size))
                    if seen_s:
                        said_s = times.prompt_s(size) if phase == "prompt" else times.decode_s(size)
                        told.append(f"{phase} {size}: {said_s / seen_s:.2f}")
            print(f"{model} on {gpu}: {', '.join(told)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
