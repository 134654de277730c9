"""The demo's cluster: four unequal CPU nodes and the model they serve, as a measured problem.

Memory budgets and speeds differ so that the best placement is not an even split and pipelines
share a node. A speed below 1 makes the agent pause after each step; it is marked in the inventory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

CLUSTER = "demo"
REGION = "local"
# Loopback as declared in the demo's inventory; nothing measures it.
LOOPBACK_BYTES_PER_S = 1.25e9
LOOPBACK_LATENCY_S = 1e-4
_FLOAT32_PER_BFLOAT16 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """A CPU agent: memory for weights, KV cache and activations; speed relative to this machine."""

    name: str
    memory_bytes: int
    relative_speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoModel:
    """A model, the nodes that serve it, and the load that they are planned for.

    `kv_requests` of `kv_tokens` each is the least KV cache of a node. The first of `questions` is
    asked at once, all of them by a check.
    """

    name: str
    nodes: tuple[LocalNode, ...]
    max_context_tokens: int
    max_batch_tokens: int
    mean_prompt_tokens: int
    mean_output_tokens: int
    kv_requests: int
    kv_tokens: int
    questions: tuple[str, ...]

    def in_float32(self) -> "DemoModel":
        """The same for weights, KV cache and activations of twice the bytes."""
        return replace(
            self,
            nodes=tuple(
                replace(node, memory_bytes=_FLOAT32_PER_BFLOAT16 * node.memory_bytes)
                for node in self.nodes
            ),
        )


def _nodes(tower: int, desktop: int, laptop: int, mini: int) -> tuple[LocalNode, ...]:
    """Four nodes with these megabytes of memory."""
    sizes = {"tower": tower, "desktop": desktop, "laptop": laptop, "mini": mini}
    speeds = {"tower": 1.0, "desktop": 0.3, "laptop": 0.25, "mini": 0.2}
    return tuple(
        LocalNode(name=name, memory_bytes=megabytes * 1_000_000, relative_speed=speeds[name])
        for name, megabytes in sizes.items()
    )


# In both no node holds the whole model, and what the tower runs alone is worth three of the others
# in parallel: so the best placement is uneven, and the tower is part of every pipeline.
CHAT = DemoModel(
    name="smollm2-135m-instruct",
    nodes=_nodes(tower=220, desktop=160, laptop=120, mini=100),
    max_context_tokens=1024,
    max_batch_tokens=64,
    mean_prompt_tokens=48,
    mean_output_tokens=48,
    kv_requests=4,
    kv_tokens=256,
    questions=(
        "What is the capital of Japan?",
        "Why is the sky blue?",
        "Write a short poem about the sea.",
    ),
)
# Trained on this machine in seconds, in float32; with its KV minimum no node can hold all layers.
TINY = DemoModel(
    name="tiny-llama",
    nodes=_nodes(tower=18, desktop=16, laptop=14, mini=12),
    max_context_tokens=512,
    max_batch_tokens=128,
    mean_prompt_tokens=12,
    mean_output_tokens=20,
    kv_requests=6,
    kv_tokens=224,
    questions=("What is HelixWeb?", "What is a pipeline?", "Where did this answer run?"),
)


def problem(model: DemoModel, measured: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as a `helixweb.problem/1` document.

    `measured` is what `python -m runtime profile` printed: `model` and `compute_profiles`.
    """
    loopback = {"bandwidth_bytes_per_s": LOOPBACK_BYTES_PER_S, "latency_s": LOOPBACK_LATENCY_S}
    return {
        "format": "helixweb.problem/1",
        "name": CLUSTER,
        "source": "four CPU agents on this machine",
        "model": {**measured["model"], "name": model.name},
        "workload": {
            "mean_prompt_tokens": model.mean_prompt_tokens,
            "mean_output_tokens": model.mean_output_tokens,
        },
        "compute_profiles": measured["compute_profiles"],
        "nodes": [
            {"name": node.name, "region": REGION, "compute_profile": node.name}
            for node in model.nodes
        ],
        "coordinator": {"region": REGION},
        "network": {
            "region_pairs": [{"source": REGION, "target": REGION, **loopback}],
            "links": [],
        },
    }
