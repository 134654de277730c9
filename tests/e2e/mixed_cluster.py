"""A cluster of 24 mixed GPUs in one region, as a problem file: 4 A100, 8 L4, 12 T4."""

import json
from typing import Any

# gpu: how many, memory, layers it may hold, tokens/s of one layer
KINDS = {
    "A100": (4, 40e9, 12, 23_800.0),
    "L4": (8, 24e9, 7, 7_560.0),
    "T4": (12, 16e9, 4, 5_700.0),
}


def problem_text() -> str:
    """`helixweb.problem/1`; throughput falls a little faster than with 1 / layers."""
    nodes = [
        {"name": f"{gpu.lower()}-{index}", "region": "rack", "compute_profile": gpu}
        for gpu, (count, *_) in KINDS.items()
        for index in range(count)
    ]
    link = {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 0.001}
    return json.dumps(
        {
            "format": "helixweb.problem/1",
            "name": "mixed24",
            "source": "made for a test",
            "model": {
                "name": "llama-70b-like",
                "num_layers": 80,
                "activation_bytes_per_token": 16384,
                "token_bytes": 2,
                "bytes_per_layer": 1.53e9,
            },
            "workload": {"mean_prompt_tokens": 750, "mean_output_tokens": 240},
            "compute_profiles": {gpu: _profile(gpu, *kind) for gpu, kind in KINDS.items()},
            "nodes": nodes,
            "coordinator": {"region": "rack"},
            "network": {
                "region_pairs": [{"source": "rack", "target": "rack", **link}],
                "links": [],
            },
        }
    )


def _profile(gpu: str, _: int, vram_bytes: float, layers: int, one_layer: float) -> dict[str, Any]:
    counts = range(1, layers + 1)
    return {
        "gpu": gpu,
        "vram_bytes": vram_bytes,
        "max_layers": layers,
        "tokens_per_s": [one_layer / held**1.08 for held in counts],
        "kv_capacity_token_layers": [vram_bytes / 5000 - 400_000 * held for held in counts],
    }
