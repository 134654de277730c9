"""From what helixweb wants of an instance to how this machine starts it; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.protocol.addresses import endpoint_of
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.instance_orders import AssignedInstance
from runtime.protocol.instances import (
    HelixInstance,
    StartedInstance,
    TransformersInstance,
    VllmInstance,
)


class CannotRun(Exception):
    """This machine cannot run the instance; the message says why and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """What every instance of this agent gets, for any assignment.

    `host` is where they listen. `gpu_budgets_bytes` as in StageSettings; `gpus`: what
    CUDA_VISIBLE_DEVICES calls each GPU that this agent has, in their order; without any an
    instance's share of `memory_budget_bytes` is its own. `memory_bytes` is all memory of each GPU,
    without GPUs of the machine. Commands and `vllm_arguments` are the machine's, never helixweb's.
    """

    host: str
    memory_budget_bytes: int
    memory_bytes: tuple[int, ...]
    gpus: tuple[int, ...]
    gpu_budgets_bytes: tuple[int, ...]
    relative_speed: float
    threads: int
    emulated: bool
    vllm_command: tuple[str, ...] = ("vllm",)
    vllm_arguments: tuple[str, ...] = ()
    transformers_command: tuple[str, ...] = ("transformers",)

    @property
    def is_alone(self) -> bool:
        """Whether only this machine reaches what listens on `host`."""
        return parse_endpoint(endpoint_of(self.host, 0), listening=True).is_loopback


def spec_of(
    order: AssignedInstance,
    *,
    port: int,
    settings: InstanceSettings,
    beside: Sequence[AssignedInstance],
) -> StartedInstance:
    """`beside` are all of the node's, this one among them, which share its memory.

    Raises CannotRun.
    """
    _check(order, settings)
    common = {"name": order.name, "port": port}
    if order.backend == "vllm":
        return VllmInstance(
            backend="vllm",
            model=order.checkpoint,
            gpus=_devices(order, settings),
            tensor_parallel=len(order.gpus),
            max_context_tokens=order.max_context_tokens,
            gpu_memory_utilization=_memory_share(order, settings, count=len(beside)),
            cpu_threads=None if settings.gpus else settings.threads,
            command=settings.vllm_command,
            extra_arguments=(*order.vllm_flags, *settings.vllm_arguments),  # the last one counts
            **common,
        )
    if order.backend == "transformers":
        return TransformersInstance(
            backend="transformers",
            model=order.checkpoint,
            device="auto" if settings.gpus else "cpu",
            command=settings.transformers_command,
            **common,
        )
    return HelixInstance(
        backend="helix",
        checkpoint=order.checkpoint,
        memory_budget_bytes=_budget_bytes(order, settings, count=len(beside)),
        max_context_tokens=order.max_context_tokens,
        relative_speed=settings.relative_speed,
        threads=settings.threads,
        gpus=_devices(order, settings) if settings.gpus else (),
        **common,
    )


def _check(order: AssignedInstance, settings: InstanceSettings) -> None:
    if settings.emulated:
        raise CannotRun(
            "this agent emulates a node and runs no model, so no instance either; deploy a plan of "
            "pipelines, or start the agent without --emulate"
        )
    if order.model_name.startswith("-"):
        raise CannotRun(
            f"the model's name {order.model_name!r} reads as an option of a command; give it "
            "another on the model's page"
        )
    if order.checkpoint.startswith("-"):
        raise CannotRun(
            f"the checkpoint {order.checkpoint!r} reads as an option of a command; write its path "
            "with ./ in front on the model's page"
        )
    if order.backend == "transformers" and not settings.is_alone:
        raise CannotRun(
            f"`transformers serve` knows no API keys, and others reach {settings.host}; use "
            "another backend, or a --data-host of loopback"
        )
    if settings.gpus and max(order.gpus) >= len(settings.gpus):
        raise CannotRun(
            f"GPU {max(order.gpus)} is wanted and this node has {len(settings.gpus)}, counted from "
            "0; compute a new plan now that the node has told its GPUs"
        )


def _devices(order: AssignedInstance, settings: InstanceSettings) -> tuple[int, ...]:
    """Orders count the GPUs of the node, which may be some of the machine's."""
    return tuple(settings.gpus[gpu] for gpu in order.gpus) if settings.gpus else order.gpus


def _budget_bytes(order: AssignedInstance, settings: InstanceSettings, *, count: int) -> int:
    if settings.gpu_budgets_bytes:
        return len(order.gpus) * min(settings.gpu_budgets_bytes[gpu] for gpu in order.gpus)
    return max(1, settings.memory_budget_bytes // max(1, count))


def _memory_share(order: AssignedInstance, settings: InstanceSettings, *, count: int) -> float:
    """The part of each GPU's memory, or of the machine's, that the budget is."""
    used = (
        [settings.memory_bytes[gpu] for gpu in order.gpus]
        if settings.gpus
        else [settings.memory_bytes[0]]
    )
    share = _budget_bytes(order, settings, count=count) / (len(used) * min(used))
    return min(1.0, max(0.01, round(share, 4)))
