"""Measured speed and memory of one kind of node for one model (Helix §4.3, the T_j)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from planner.domain.errors import InvalidProblem
from planner.domain.instance import InstanceTimes
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.domain.limits import (
    MAX_BYTES,
    MAX_TOKEN_LAYERS,
    MAX_TOKENS_PER_S,
    Price,
    Range,
    check_fields,
)
from planner.domain.node_memory import NodeMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """Speed and KV room of a node that holds j layers, for j = 1 .. max_layers.

    `tokens_per_s[j-1]` is the paper's T_j; `kv_capacity_token_layers[j-1]` is the room left for
    KV cache, in tokens x layers. With `memory` these hold for layers in the middle of the model,
    and it says what its ends leave; without, wherever the layers are. `layer_times` and
    `batch_limits` are what forecasts use, where they were measured. `instance_times` are those
    of whole-model engines on this machine, by the tensor-parallel degree that they were measured
    with.
    """

    name: str
    gpu: str
    vram_bytes: Annotated[float, Range(0, MAX_BYTES, above=True)]
    max_layers: Annotated[int, Range(0)]
    tokens_per_s: tuple[Annotated[float, Range(0, MAX_TOKENS_PER_S)], ...]
    kv_capacity_token_layers: tuple[Annotated[float, Range(0, MAX_TOKEN_LAYERS)], ...]
    layer_times: LayerTimes | None = None
    batch_limits: BatchLimits | None = None
    price_per_hour: Price | None = None
    instance_times: Mapping[int, InstanceTimes] = field(default_factory=dict, hash=False)
    memory: NodeMemory | None = None

    def __post_init__(self) -> None:
        where = f"compute profile {self.name!r}: "
        check_fields(self, where)
        limits = self.batch_limits
        by_layers: dict[str, tuple[float, ...]] = {
            "tokens_per_s": self.tokens_per_s,
            "kv_capacity_token_layers": self.kv_capacity_token_layers,
        }
        if limits is not None:
            by_layers["batch_limits.prompt_max_requests"] = limits.prompt_max_requests
            by_layers["batch_limits.decode_max_tokens"] = limits.decode_max_tokens
        for key, values in by_layers.items():
            if len(values) < self.max_layers:
                raise InvalidProblem(
                    f"{where}{key} has {len(values)} entries but max_layers is "
                    f"{self.max_layers}; give one entry for each number of layers held"
                )

    def most_layers(self, *, has_first: bool, has_last: bool) -> int:
        """The most layers that it can hold with those ends of the model."""
        room = self.memory and self.memory.room(has_first=has_first, has_last=has_last)
        return min(self.max_layers, room.max_layers) if room else self.max_layers

    def kv_room_token_layers(self, layers_held: int, *, has_first: bool, has_last: bool) -> float:
        """Its KV room with so many layers, 1 to `max_layers`, and those ends of the model."""
        room = self.memory and self.memory.room(has_first=has_first, has_last=has_last)
        less = room.kv_token_layers_less if room else 0.0
        return max(0.0, self.kv_capacity_token_layers[layers_held - 1] - less)

    def throughput_tokens_per_s(self, layers_held: int) -> float:
        """T_j; 0 when it holds none or more than it can."""
        if not 1 <= layers_held <= self.max_layers:
            return 0.0
        return self.tokens_per_s[layers_held - 1]
