"""What this machine has: memory, processors, GPUs. Loads no torch."""

import platform
import re
import socket
from collections.abc import Sequence

import psutil

from planner.domain.cluster import RESERVED_NAMES
from runtime.protocol.control import Gpu, Hardware
from runtime.protocol.emulation import Emulation

# What a stage may use of memory by default: the rest is for everything else there.
_GPU_SHARE = 0.9
_CPU_SHARE = 0.5
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_HOST_NAME_LENGTH = 56  # leaves room for a number within the 64 characters of a node's name


def machine_name() -> str:
    """The host's name as a node's name: without its domain and unfit characters."""
    host = socket.gethostname().partition(".")[0]
    name = _UNFIT.sub("-", host)[:_HOST_NAME_LENGTH].strip("-.") or "node"
    return f"{name}-node" if name in RESERVED_NAMES else name


def detect_hardware(
    *, memory_budget_bytes: int | None, relative_speed: float, gpus: Sequence[Gpu]
) -> Hardware:
    """This machine with these `gpus`. Without a budget, that of one rank: 90 % of the first GPU; or
    half of main memory."""
    memory_bytes = psutil.virtual_memory().total
    if memory_budget_bytes is None:
        memory_budget_bytes = int(gpu_budgets_bytes(gpus)[0] if gpus else memory_bytes * _CPU_SHARE)
    return Hardware(
        hostname=platform.node() or "unknown",
        cpu_count=psutil.cpu_count() or 1,
        memory_bytes=memory_bytes,
        memory_budget_bytes=memory_budget_bytes,
        relative_speed=relative_speed,
        gpus=tuple(gpus),
    )


def gpu_budgets_bytes(gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """What a rank may use of each GPU by default."""
    return tuple(int(gpu.memory_bytes * _GPU_SHARE) for gpu in gpus)


def emulated_hardware(emulation: Emulation) -> Hardware:
    """This machine's name and processors with the memory and GPU of the node it acts as."""
    memory_bytes = int(emulation.profile.vram_bytes)
    return Hardware(
        hostname=platform.node() or "unknown",
        cpu_count=psutil.cpu_count() or 1,
        memory_bytes=memory_bytes,
        memory_budget_bytes=memory_bytes,
        gpus=(Gpu(name=emulation.profile.gpu, memory_bytes=memory_bytes),),
        emulated=True,
    )
