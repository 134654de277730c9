"""Whether the weights of a share fit into what the device has free now."""

from pathlib import Path

import psutil
import torch

from runtime.models.checkpoint import CheckpointError

_CGROUP = Path("/sys/fs/cgroup")


class MemoryTooSmall(CheckpointError):
    """The layers asked for do not fit; the message tells needed and free bytes."""


def free_bytes(device: torch.device) -> int:
    """What this process may still take on `device`, other processes' memory counted; on CPU also
    within the limit of its container."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    limit = _container_free_bytes(_CGROUP)
    return free if limit is None else min(free, limit)


def allocator_overhead_bytes(device: torch.device) -> int:
    """Memory that was taken from a GPU at most and held no tensor at the peak: what steps leave in
    pieces. Measured since the process began; 0 on a CPU, where the system gets memory back."""
    if device.type != "cuda":
        return 0
    most_taken = torch.cuda.max_memory_reserved(device)
    return max(0, most_taken - torch.cuda.max_memory_allocated(device))


def require_memory(device: torch.device, *, needed_bytes: int, first: int, end: int) -> None:
    """Raises MemoryTooSmall before anything is read, not when half of it is."""
    free = free_bytes(device)
    if needed_bytes > free:
        raise MemoryTooSmall(
            f"layers [{first}, {end}) need {needed_bytes} bytes of weights, {free} bytes are free "
            f"on {device}; give the node fewer layers or end what else uses its memory"
        )


def _container_free_bytes(cgroup: Path) -> int | None:
    """What is left under the memory limit of `cgroup` (version 2), file cache counted as free;
    None without a limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((cgroup / "memory.current").read_text())
        counters = dict(
            line.split(" ", 1) for line in (cgroup / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):
        return None  # no version 2 hierarchy here
    return int(limit) - used + int(counters.get("inactive_file", "0"))
