"""The memory rows lie in between the wire and the device.

For a GPU it is pinned: the device reads and writes it by itself, without a copy in between that the
processor makes, and the bytes go to the wire from where the device put them. torch keeps freed
pinned memory for the next step, and hands none out that a transfer still uses.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

logger = logging.getLogger(__name__)

Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


class HostMemory:
    """Takes rows to `device` and back. `pinned` is None on a CPU, and where it cannot be had."""

    def __init__(self, device: torch.device, *, pinned: Allocate | None) -> None:
        self._device = device
        self._pinned = pinned

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Memory to write rows into that go to the device."""
        if self._pinned is None:
            return torch.empty(shape, dtype=dtype)
        return self._pinned(shape, dtype)

    def to_device(self, rows: Tensor) -> Tensor:
        """`rows`, made by `empty`, on the device; what runs there waits for them by itself."""
        return rows.to(self._device, non_blocking=self._pinned is not None)

    def send(self, values: NDArray[Any]) -> Tensor:
        """A copy of `values` on the device; what runs there waits for them by itself."""
        source = torch.from_numpy(values)
        return self.to_device(self.empty(*values.shape, dtype=source.dtype).copy_(source))

    def to_host(self, rows: Tensor) -> Tensor:
        """`rows` of the device, contiguous and complete; the same memory on a CPU."""
        if self._pinned is None:
            return rows.cpu().contiguous()
        landed = self._pinned(tuple(rows.shape), rows.dtype)
        landed.copy_(rows, non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return landed


def host_memory(device: torch.device, *, pinned: Allocate | None = None) -> HostMemory:
    """For a GPU pinned memory, or, with a note, what there is. `pinned` stands in for torch's."""
    if device.type != "cuda":
        return HostMemory(device, pinned=None)
    allocate = pinned or _pinned
    try:
        allocate((1,), torch.uint8)
    except RuntimeError as error:
        logger.warning(
            "rows pass through memory that is not pinned, which is slower: %s; let the process "
            "lock memory (ulimit -l)",
            error,
        )
        return HostMemory(device, pinned=None)
    return HostMemory(device, pinned=allocate)


def _pinned(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, pin_memory=True)
