"""What this machine has: memory, processors, GPUs. Loads no torch."""

import logging
import platform
import subprocess
from collections.abc import Sequence

import psutil

from runtime.protocol.control import Gpu, Hardware
from runtime.protocol.emulation import Emulation

logger = logging.getLogger(__name__)

# What a stage may use of memory when nobody says: the rest is for everything else there.
_GPU_SHARE = 0.9
_CPU_SHARE = 0.5
_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_NVIDIA_SMI_TIMEOUT_S = 10.0
_MIB = 1 << 20


def detect_hardware(*, memory_budget_bytes: int | None, relative_speed: float) -> Hardware:
    """This machine. Without a budget, that of one rank: 90 % of the first GPU; or half of main
    memory."""
    memory_bytes = psutil.virtual_memory().total
    gpus = find_gpus()
    if memory_budget_bytes is None:
        memory_budget_bytes = int(gpu_budgets_bytes(gpus)[0] if gpus else memory_bytes * _CPU_SHARE)
    return Hardware(
        hostname=platform.node() or "unknown",
        cpu_count=psutil.cpu_count() or 1,
        memory_bytes=memory_bytes,
        memory_budget_bytes=memory_budget_bytes,
        relative_speed=relative_speed,
        gpus=gpus,
    )


def gpu_budgets_bytes(gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """What a rank may use of each GPU when nobody says."""
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


def find_gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs as `nvidia-smi` lists them; none where it is missing or fails."""
    try:
        done = subprocess.run(
            _NVIDIA_SMI, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=True
        )
    except FileNotFoundError:
        return ()
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("nvidia-smi does not work, so no GPU is announced: %s", error)
        return ()
    return parse_gpus(done.stdout)


def parse_gpus(listing: str) -> tuple[Gpu, ...]:
    """`NAME, MIB` lines. A GPU whose memory is not told (shared with the CPU) is left out."""
    gpus = []
    for line in listing.splitlines():
        name, _, memory_mib = line.rpartition(",")
        if name and memory_mib.strip().isdecimal():
            gpus.append(Gpu(name=name.strip(), memory_bytes=int(memory_mib) * _MIB))
        elif line.strip():
            logger.warning("nvidia-smi tells no memory of a GPU, so it is left out: %s", line)
    return tuple(gpus)
