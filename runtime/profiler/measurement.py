"""One measurement of this machine, from which profiles of nodes follow; `python -m runtime profile`
and the agent's `profile-node` both run it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from planner.domain.node_memory import KvMinimum
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from planner.memory import DEFAULT_KV_REQUESTS, kv_minimum
from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.opening import AnyEngine
from runtime.models.free_memory import allocator_overhead_bytes, free_bytes
from runtime.profiler.compute import compute_profile, least_bytes
from runtime.profiler.node_sweep import NodeSweep, Turn
from runtime.profiler.rehearsal import Beside, rehearse
from runtime.profiler.step_times import DEEP, REST_S, most_decodes

Rehearse = Callable[..., Beside]


class Measurement:
    """Owns the steps that are timed and what they took; a profiling process makes one.

    Steps have as many decodes as fit into `memory_budget_bytes` and into what is free on the
    device: a stage may serve beside it. `rest` is called with the seconds of the step before.
    """

    def __init__(
        self,
        checkpoint: Path,
        engine: AnyEngine,
        *,
        workload: Workload,
        limits: EngineLimits,
        memory_budget_bytes: int,
        clock: Callable[[], float],
        rest: Callable[[float], None],
    ) -> None:
        self.engine = engine
        self._checkpoint, self._clock = checkpoint, clock
        self._workload, self._limits = workload, limits
        context_tokens = int(workload.mean_prompt_tokens + workload.mean_output_tokens / 2)
        free = max(0, free_bytes(engine.device) - engine.first_bytes(DEEP))
        room_bytes = min(memory_budget_bytes, free)
        pages = room_bytes // page_bytes(engine.sizes, page_tokens=limits.page_tokens)
        self.sweep = NodeSweep(
            engine,
            context_tokens=max(1, min(context_tokens, limits.max_context_tokens - 1)),
            limits=limits,
            decodes=most_decodes(float(pages * limits.page_tokens), context_tokens=context_tokens),
            clock=clock,
            rest=rest,
        )
        self._beside: Beside

    def run(self, turn: Turn, *, rehearse: Rehearse = rehearse) -> None:
        """Time all steps, then what a stage does beside them, each in its turn."""
        self.sweep.run(turn)
        self._beside = turn(
            1.0,
            lambda: rehearse(
                self._checkpoint,
                self.engine,
                limits=self._limits,
                clock=self._clock,
                rest_s=REST_S,
            ),
        )

    def kv_minimum(
        self, requests: int = DEFAULT_KV_REQUESTS, tokens: int | None = None
    ) -> KvMinimum:
        """KV cache that layers must leave room for; `tokens` None: those of a mean request."""
        longest_tokens = self._limits.max_context_tokens
        return kv_minimum(
            self._workload, longest_tokens=longest_tokens, requests=requests, tokens=tokens
        )

    def profile(
        self, name: str, *, memory_budget_bytes: int, relative_speed: float, kv_minimum: KvMinimum
    ) -> ComputeProfile:
        """Of a node with that memory and speed; `max_layers` may be 0. Call `run` first."""
        device = self.engine.device
        return compute_profile(
            name,
            config=self.engine.sizes,
            limits=self._limits_of_stages,
            times=self.sweep.step_times(),
            beside=self._beside,
            workload=self._workload,
            device_name=torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
            memory_budget_bytes=memory_budget_bytes,
            relative_speed=relative_speed,
            kv_minimum=kv_minimum,
        )

    def why_no_layer(self, *, memory_budget_bytes: float, kv_minimum: KvMinimum) -> str:
        """A clause for people, of a node whose profile holds no layer."""
        needed = least_bytes(self.engine.sizes, self._limits_of_stages, kv_minimum=kv_minimum)
        return (
            f"{memory_budget_bytes:.0f} bytes hold no layer of {self._checkpoint.name}; one layer "
            f"and KV cache for {kv_minimum} need {needed} bytes"
        )

    @property
    def _limits_of_stages(self) -> EngineLimits:
        """With what the allocator lost at the peak of what was measured."""
        reserve_bytes = allocator_overhead_bytes(self.engine.device)
        return replace(self._limits, reserve_bytes=reserve_bytes)
