"""The demo's cluster: four unequal CPU nodes, described from a measured profile.

Memory budgets and speeds differ so that the best placement is not an even split and pipelines
share a node. A speed below 1 makes the agent pause after each step; it is marked in the inventory.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLUSTER = "demo"
MODEL = "tiny-llama"
REGION = "local"
MAX_CONTEXT_TOKENS = 512
MAX_BATCH_TOKENS = 128
MEAN_PROMPT_TOKENS = 12
MEAN_OUTPUT_TOKENS = 20
# Loopback as declared in the demo's inventory; nothing measures it.
LOOPBACK_BYTES_PER_S = 1.25e9
LOOPBACK_LATENCY_S = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """A CPU agent: memory for weights, KV cache and activations; speed relative to this machine."""

    name: str
    memory_bytes: int
    relative_speed: float


# No node holds the whole model, and what the tower runs alone is worth three of the others in
# parallel: so the best placement is uneven, and the tower is part of every pipeline.
NODES = (
    LocalNode(name="tower", memory_bytes=18_000_000, relative_speed=1.0),
    LocalNode(name="desktop", memory_bytes=16_000_000, relative_speed=0.3),
    LocalNode(name="laptop", memory_bytes=14_000_000, relative_speed=0.25),
    LocalNode(name="mini", memory_bytes=12_000_000, relative_speed=0.2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the demo must know of the model on disk (Hugging Face config.json)."""

    path: Path
    num_layers: int
    hidden_size: int
    layer_bytes: int

    @classmethod
    def read(cls, path: Path) -> "Checkpoint":
        """Sizes from config.json, in fp32."""
        config = json.loads((path / "config.json").read_text())
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        head = config.get("head_dim") or hidden // config["num_attention_heads"]
        queries = config["num_attention_heads"] * head
        keys = config["num_key_value_heads"] * head
        layer = hidden * (2 * queries + 2 * keys + 3 * inner) + 2 * hidden
        return cls(
            path=path,
            num_layers=config["num_hidden_layers"],
            hidden_size=hidden,
            layer_bytes=4 * layer,
        )


def problem(checkpoint: Checkpoint, profiles: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The cluster as a `helixweb.problem/1` document; `profiles` were measured."""
    loopback = {"bandwidth_bytes_per_s": LOOPBACK_BYTES_PER_S, "latency_s": LOOPBACK_LATENCY_S}
    return {
        "format": "helixweb.problem/1",
        "name": CLUSTER,
        "source": "four CPU agents on this machine",
        "model": {
            "name": MODEL,
            "num_layers": checkpoint.num_layers,
            "activation_bytes_per_token": 4 * checkpoint.hidden_size,
            "token_bytes": 4,
            "bytes_per_layer": checkpoint.layer_bytes,
        },
        "workload": {
            "mean_prompt_tokens": MEAN_PROMPT_TOKENS,
            "mean_output_tokens": MEAN_OUTPUT_TOKENS,
        },
        "compute_profiles": profiles,
        "nodes": [
            {"name": node.name, "region": REGION, "compute_profile": node.name} for node in NODES
        ],
        "coordinator": {"region": REGION},
        "network": {
            "region_pairs": [{"source": REGION, "target": REGION, **loopback}],
            "links": [],
        },
    }
