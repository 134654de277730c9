"""A profile of a GPU that was not measured, from its data sheet; marked as an estimate.

A layer takes as long as its arithmetic or its memory traffic, whichever is longer, at the shares of
the data sheet that kernels reach, plus what launching them costs. Weights are read once a step,
keys and values once a decode. How far this is off: `python -m benchmarks.instances.roofline`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from planner.domain.errors import PlannerError
from planner.domain.layer_times import LayerTimes, Points
from planner.domain.limits import POSITIVE, check_fields
from planner.domain.model_spec import ModelSpec
from planner.domain.node_memory import KvMinimum
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from planner.memory import ModelMemory, StepShape, kv_minimum, node_room

ESTIMATED = "estimated from its data sheet"
FLOPS_SHARE, BYTES_SHARE = 0.5, 0.75
LAUNCH_S = 1e-4  # of a layer: a dozen kernels without a graph
USABLE_MEMORY = 0.9
TARGET_OCCUPANCY = 0.3  # of the KV room, as when a profile is measured (runtime/profiler)
_ELEMENT_BYTES = 2
# Of models that do not say: the larger vocabularies of today, held twice.
ASSUMED_VOCABULARY = 131_072
STEP_TOKENS = 512  # the default of deployed stages
_PROMPT_TOKENS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096)
_DECODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class UnknownGpu(PlannerError, ValueError):
    """A GPU without a data sheet here; the message names those there are."""


class UnknownShape(PlannerError, ValueError):
    """The sizes of the model's layers cannot be derived; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheet:
    """`flops` are those of dense 16-bit matrix products a second."""

    memory_bytes: Annotated[float, POSITIVE]
    bytes_per_s: Annotated[float, POSITIVE]
    flops: Annotated[float, POSITIVE]

    def __post_init__(self) -> None:
        check_fields(self, error=UnknownGpu)


def _sheet(memory_gb: float, gb_per_s: float, tflops: float) -> DataSheet:
    return DataSheet(memory_bytes=memory_gb * 1e9, bytes_per_s=gb_per_s * 1e9, flops=tflops * 1e12)


# From NVIDIA's data sheets; where they state flops with sparsity, half of that.
DATA_SHEETS: Mapping[str, DataSheet] = MappingProxyType(
    {
        "A10": _sheet(24, 600, 125),
        "A100-40GB": _sheet(40, 1555, 312),
        "A100-80GB": _sheet(80, 2039, 312),
        "H100-PCIe": _sheet(80, 2000, 756),
        "H100-SXM": _sheet(80, 3350, 989),
        "H200": _sheet(141, 4800, 989),
        "L4": _sheet(24, 300, 121),
        "L40S": _sheet(48, 864, 362),
        "RTX-3090": _sheet(24, 936, 71),
        "RTX-4090": _sheet(24, 1008, 165),
        "T4": _sheet(16, 320, 65),
        "V100-16GB": _sheet(16, 900, 125),
        "V100-32GB": _sheet(32, 900, 125),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer of a decoder with gated MLP and grouped queries, in 16 bits."""

    hidden_size: int
    intermediate_size: int
    query_heads: int
    kv_heads: int
    head_size: int

    @property
    def parameters(self) -> int:
        """Number of parameters in the matrices."""
        attention = 2 * self.hidden_size * (self.query_heads + self.kv_heads) * self.head_size
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def weights_bytes(self) -> float:
        return float(self.parameters * _ELEMENT_BYTES)

    @property
    def kv_token_bytes(self) -> float:
        """Keys and values of one token in this layer."""
        return float(2 * self.kv_heads * self.head_size * _ELEMENT_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Size of a model's vocabulary; tied embeddings are its output head as well."""

    size: int
    is_tied: bool


def layer_shape(model: ModelSpec) -> LayerShape:
    """Of a model in 16 bits, from what the planner knows of it; its MLP has what attention leaves.

    Raises UnknownShape.
    """
    if model.num_heads is None or model.num_kv_heads is None:
        raise UnknownShape(
            f"model {model.name!r} does not say how many heads it has; give num_heads and "
            "num_kv_heads"
        )
    hidden = int(model.activation_bytes_per_token) // _ELEMENT_BYTES
    parameters = int(model.bytes_per_layer) // _ELEMENT_BYTES
    head_size = hidden // model.num_heads
    attention = 2 * hidden * (model.num_heads + model.num_kv_heads) * head_size
    intermediate = (parameters - attention) // (3 * hidden) if hidden else 0
    if head_size < 1 or intermediate < 1:
        raise UnknownShape(
            f"model {model.name!r} has {model.bytes_per_layer:g} bytes a layer, rows of "
            f"{model.activation_bytes_per_token:g} bytes and {model.num_heads} heads, which is no "
            "decoder layer in 16 bits; correct these numbers"
        )
    return LayerShape(
        hidden_size=hidden,
        intermediate_size=intermediate,
        query_heads=model.num_heads,
        kv_heads=model.num_kv_heads,
        head_size=head_size,
    )


def is_estimated(profile: ComputeProfile) -> bool:
    """True if it was made here, not measured."""
    return profile.gpu.endswith(f"({ESTIMATED})")


def data_sheet(gpu: str) -> DataSheet:
    """The data sheet of a GPU. Raises UnknownGpu."""
    if gpu not in DATA_SHEETS:
        raise UnknownGpu(
            f"there is no data sheet of {gpu!r}; there are {', '.join(DATA_SHEETS)}, or give its "
            "memory, bytes/s and flops"
        )
    return DATA_SHEETS[gpu]


def sheet_name_of(gpu: str) -> str:
    """The data sheet of a GPU as its driver calls it: "NVIDIA GeForce RTX 4090" -> "RTX-4090".

    Raises UnknownGpu.
    """
    words = set(re.split(r"[^a-z0-9]+", gpu.lower()))
    if "hbm3" in words:  # H100 SXM, which does not say so
        words.add("sxm")
    known = [name for name in DATA_SHEETS if set(name.lower().split("-")) <= words]
    if not known:
        raise UnknownGpu(f"there is no data sheet of {gpu!r}; there are {', '.join(DATA_SHEETS)}")
    return max(known, key=len)


def roofline_times(sheet: DataSheet, layer: LayerShape, *, context_tokens: float) -> LayerTimes:
    """Seconds of a layer for prompts and for decodes that attend over `context_tokens` each."""

    def seconds(rows: int, traffic_bytes: float) -> float:
        computing_s = 2 * layer.parameters * rows / (sheet.flops * FLOPS_SHARE)
        reading_s = traffic_bytes / (sheet.bytes_per_s * BYTES_SHARE)
        return LAUNCH_S + max(computing_s, reading_s)

    prompt: Points = tuple(
        (float(tokens), seconds(tokens, layer.weights_bytes)) for tokens in _PROMPT_TOKENS
    )
    kept_bytes = context_tokens * layer.kv_token_bytes
    decode: Points = tuple(
        (float(count), seconds(count, layer.weights_bytes + count * kept_bytes))
        for count in _DECODES
    )
    return LayerTimes(prompt=prompt, decode=decode)


def model_memory(
    layer: LayerShape,
    *,
    num_layers: int,
    vocabulary: Vocabulary,
    minimum: KvMinimum,
    context_tokens: float,
) -> ModelMemory:
    """Memory of the model on a node that runs steps of `STEP_TOKENS`."""
    table = float(vocabulary.size * layer.hidden_size * _ELEMENT_BYTES)
    shape = StepShape(
        hidden_size=layer.hidden_size,
        intermediate_size=layer.intermediate_size,
        query_size=layer.query_heads * layer.head_size,
        kv_size=layer.kv_heads * layer.head_size,
        vocab_size=vocabulary.size,
        element_bytes=_ELEMENT_BYTES,
    )
    without_head, with_head = (
        shape.activation_bytes(STEP_TOKENS, context_tokens=context_tokens, has_head=has_head)
        for has_head in (False, True)
    )
    return ModelMemory(
        num_layers=num_layers,
        layer=layer.weights_bytes,
        first=table,
        last=table,
        both=table if vocabulary.is_tied else 2 * table,
        kv_token=layer.kv_token_bytes,
        kv_minimum=minimum,
        activations=without_head,
        head_activations=with_head - without_head,
    )


def roofline_profile(
    name: str,
    sheet: DataSheet,
    layer: LayerShape,
    *,
    gpu: str,
    num_layers: int,
    workload: Workload,
    vocabulary: Vocabulary | None = None,
    longest_tokens: int | None = None,
    minimum: KvMinimum | None = None,
) -> ComputeProfile:
    """Profile of a node with that GPU, for 1 to all layers it can hold.

    Beside them there is room for KV cache of `minimum`, by default eight requests of the workload's
    mean length or one of `longest_tokens`. Without a `vocabulary` a large one is assumed.
    """
    prompt, output = workload.mean_prompt_tokens, workload.mean_output_tokens
    times = roofline_times(sheet, layer, context_tokens=prompt + output / 2)
    memory_bytes = sheet.memory_bytes * USABLE_MEMORY
    model = model_memory(
        layer,
        num_layers=num_layers,
        vocabulary=vocabulary or Vocabulary(size=ASSUMED_VOCABULARY, is_tied=False),
        minimum=minimum or kv_minimum(workload, longest_tokens=longest_tokens),
        context_tokens=longest_tokens or prompt + output,
    )
    held = node_room(
        lambda _layers, _has_first, _has_last: model,
        budget_bytes=memory_bytes,
        num_layers=num_layers,
    )
    speeds = []
    for layers, room in enumerate(held.kv_token_layers, start=1):
        batch = max(1.0, TARGET_OCCUPANCY * room / (layers * (prompt + output)))
        batch = min(batch, float(_DECODES[-1]))
        request_s = times.prompt_s(prompt) + output * times.decode_s(batch) / batch
        speeds.append((prompt + output) / (layers * request_s))
    return ComputeProfile(
        name=name,
        gpu=f"{gpu} ({ESTIMATED})",
        vram_bytes=sheet.memory_bytes,
        max_layers=held.max_layers,
        tokens_per_s=tuple(speeds),
        kv_capacity_token_layers=held.kv_token_layers,
        layer_times=times,
        memory=held.memory,
    )
