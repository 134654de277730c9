"""Whole-model instances in a plan: which node runs how many, and why these."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from planner.domain.errors import InvalidProblem
from planner.domain.limits import Name, Range, check_fields

Backend = Literal["helix", "vllm", "transformers"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
PlanMethod = Literal["pipelines", "instances", "mixed"]

EngineTerms: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTimes:
    """p1..p4 of a prefill and p5..p8 of a decode step of one engine (Xiong et al. §3.1)."""

    prefill: EngineTerms
    decode: EngineTerms

    def __post_init__(self) -> None:
        for phase in ("prefill", "decode"):
            terms: EngineTerms = getattr(self, phase)
            if len(terms) != 4 or not all(0 <= term < float("inf") for term in terms):
                raise InvalidProblem(
                    f"instance_times: {phase} is {list(terms)}; give four numbers of 0 or more"
                )
            if not any(terms):
                raise InvalidProblem(
                    f"instance_times: {phase} is all 0; no batch takes no time, so measure it with "
                    "`python -m runtime measure-instance`"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInstance:
    """A replica of the whole model on `gpus` (indices) of `node`, as many as its degree.

    `output_tokens_per_s` is simulated, while requests always wait.
    """

    name: Name
    node: Name
    gpus: tuple[int, ...]
    tensor_parallel: Annotated[int, Range(1)]
    backend: Backend
    output_tokens_per_s: float
    kv_room_tokens: Annotated[int, Range(1)]
    times: InstanceTimes

    def __post_init__(self) -> None:
        if len(self.gpus) != self.tensor_parallel or len(set(self.gpus)) != len(self.gpus):
            raise InvalidProblem(
                f"instance {self.name!r} has the GPUs {list(self.gpus)} for a tensor-parallel "
                f"degree of {self.tensor_parallel}; give it one for each rank"
            )
        check_fields(self, f"instance {self.name!r}: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeRank:
    """A tensor-parallel degree on one kind of machine, ranked twice.

    `static_tokens_per_s` is Algorithm 1's (prompts and answers, batches that stay together),
    `simulated_tokens_per_s` the same with continuous batching, `output_tokens_per_s` its answers
    alone; all of the machine's instances together. `refused` says why the degree cannot be.
    """

    machine: str
    nodes: tuple[str, ...]
    degree: Annotated[int, Range(1)]
    instances: int
    kv_room_tokens: int
    static_tokens_per_s: float
    simulated_tokens_per_s: float
    output_tokens_per_s: float
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodForecast:
    """Predicted output of one method to serve; None if impossible, see `remark`."""

    method: str
    output_tokens_per_s: float | None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodChoice:
    """Reasons for or against instances: every method compared, and every degree."""

    chosen: str
    candidates: tuple[MethodForecast, ...]
    degrees: tuple[DegreeRank, ...]


def instance_nodes(instances: Iterable[PlannedInstance]) -> frozenset[str]:
    """The nodes that run them."""
    return frozenset(one.node for one in instances)
