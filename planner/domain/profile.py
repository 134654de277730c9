"""Measured speed and memory of one kind of node for one model (Helix §4.3, the T_j)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.domain.errors import InvalidProblem
from planner.domain.instance import InstanceTimes
from planner.domain.layer_times import BatchLimits, LayerTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """What a node does when it holds j layers, for j = 1 .. max_layers.

    `tokens_per_s[j-1]` is the paper's T_j; `kv_capacity_token_layers[j-1]` is the room left for
    KV cache, in tokens x layers. `layer_times` and `batch_limits` are what forecasts use, where
    somebody measured them. `instance_times` are those of whole-model engines on this machine, by
    the tensor-parallel degree that they were measured with.
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

    def __post_init__(self) -> None:
        where = f"compute profile {self.name!r}"
        if not self.vram_bytes > 0:
            raise InvalidProblem(f"{where}: vram_bytes is {self.vram_bytes}; it must be above 0")
        if self.price_per_hour is not None and not self.price_per_hour > 0:
            raise InvalidProblem(
                f"{where}: price_per_hour is {self.price_per_hour}; it must be above 0, or left out"
            )
        if self.max_layers < 0:
            raise InvalidProblem(f"{where}: max_layers is {self.max_layers}; it must be 0 or more")
        for key in ("tokens_per_s", "kv_capacity_token_layers"):
            values = getattr(self, key)
            if len(values) < self.max_layers:
                raise InvalidProblem(
                    f"{where}: {key} has {len(values)} entries but max_layers is "
                    f"{self.max_layers}; give one entry for each number of layers held"
                )
            for layers, value in enumerate(values, start=1):
                if not value >= 0:
                    raise InvalidProblem(
                        f"{where}: {key} for {layers} layers is {value}; it must be 0 or more"
                    )

        if self.batch_limits is not None:
            for key in ("prompt_max_requests", "decode_max_tokens"):
                values = getattr(self.batch_limits, key)
                if len(values) < self.max_layers:
                    raise InvalidProblem(
                        f"{where}: batch_limits.{key} has {len(values)} entries but max_layers is "
                        f"{self.max_layers}; give one entry for each number of layers held"
                    )

    def throughput_tokens_per_s(self, layers_held: int) -> float:
        """T_j; 0 when it holds none or more than it can."""
        if not 1 <= layers_held <= self.max_layers:
            return 0.0
        return self.tokens_per_s[layers_held - 1]
