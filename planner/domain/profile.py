"""Measured speed and memory of one kind of node for one model (Helix §4.3, the T_j)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.domain.errors import InvalidProblem
from planner.domain.instance import InstanceTimes
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.domain.limits import (
    MAX_BYTES,
    MAX_PRICE,
    MAX_TOKEN_LAYERS,
    MAX_TOKENS_PER_S,
    check_all_between,
    check_between,
)
from planner.domain.node_memory import NodeMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """What a node does when it holds j layers, for j = 1 .. max_layers.

    `tokens_per_s[j-1]` is the paper's T_j; `kv_capacity_token_layers[j-1]` is the room left for
    KV cache, in tokens x layers. With `memory` these hold for layers in the middle of the model,
    and it says what its ends leave; without, wherever the layers are. `layer_times` and
    `batch_limits` are what forecasts use, where they were measured. `instance_times` are those
    of whole-model engines on this machine, by the tensor-parallel degree that they were measured
    with.
    """

    name: str
    gpu: str
    vram_bytes: float
    max_layers: int
    tokens_per_s: tuple[float, ...]
    kv_capacity_token_layers: tuple[float, ...]
    layer_times: LayerTimes | None = None
    batch_limits: BatchLimits | None = None
    price_per_hour: float | None = None
    instance_times: Mapping[int, InstanceTimes] = field(default_factory=dict, hash=False)
    memory: NodeMemory | None = None

    def __post_init__(self) -> None:
        where = f"compute profile {self.name!r}"
        if not self.vram_bytes > 0:
            raise InvalidProblem(f"{where}: vram_bytes is {self.vram_bytes}; it must be above 0")
        if self.price_per_hour is not None and not self.price_per_hour > 0:
            raise InvalidProblem(
                f"{where}: price_per_hour is {self.price_per_hour}; it must be above 0, or left out"
            )
        check_between(f"{where}: vram_bytes", self.vram_bytes, 0, MAX_BYTES)
        check_between(f"{where}: price_per_hour", self.price_per_hour or 0.0, 0, MAX_PRICE)
        if self.max_layers < 0:
            raise InvalidProblem(f"{where}: max_layers is {self.max_layers}; it must be 0 or more")
        for key, most in (
            ("tokens_per_s", MAX_TOKENS_PER_S),
            ("kv_capacity_token_layers", MAX_TOKEN_LAYERS),
        ):
            values = getattr(self, key)
            if len(values) < self.max_layers:
                raise InvalidProblem(
                    f"{where}: {key} has {len(values)} entries but max_layers is "
                    f"{self.max_layers}; give one entry for each number of layers held"
                )
            check_all_between(f"{where}: {key}", values, 0, most)

        if self.batch_limits is not None:
            for key in ("prompt_max_requests", "decode_max_tokens"):
                values = getattr(self.batch_limits, key)
                if len(values) < self.max_layers:
                    raise InvalidProblem(
                        f"{where}: batch_limits.{key} has {len(values)} entries but max_layers is "
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
