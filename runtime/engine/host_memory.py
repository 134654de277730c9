"""The memory rows lie in between the wire and the device.

For a GPU it is pinned: the device reads and writes it by itself, without a copy in between that the
processor makes, and the bytes go to the wire from where the device put them. torch keeps freed
pinned memory for the next step, and hands none out that a transfer still uses.
"""

import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

logger = logging.getLogger(__name__)

Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]
Fill = Callable[[NDArray[Any]], object]
# kernels read vectors of up to 16 bytes, and Triton compiles once more for an address that is none
_ALIGNMENT = 64


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

    def rows_at(self, rows: Tensor, places: list[int]) -> Tensor:
        """Some of `rows`, which are on the device; of adjoining ones nothing is copied."""
        if places == list(range(places[0], places[-1] + 1)):
            return rows[places[0] : places[-1] + 1]
        parcel = self.parcel()
        where = parcel.add(np.array(places))
        parcel.send()
        return rows[where()]

    def parcel(self) -> "Parcel":
        """An empty one for this device."""
        return Parcel(self)

    @property
    def copies_beside(self) -> bool:
        """Whether the device copies while the thread that asked for it goes on."""
        return self._pinned is not None

    def to_host(self, rows: Tensor) -> Tensor:
        """`rows` of the device, contiguous and complete; the same memory on a CPU."""
        return self.start_to_host(rows)()

    def start_to_host(self, rows: Tensor) -> Callable[[], Tensor]:
        """Has `rows` copied; called, what it returns waits for them, and for nothing that the
        device was given to do since."""
        if self._pinned is None:
            on_host = rows.cpu().contiguous()
            return lambda: on_host
        landed = self._pinned(tuple(rows.shape), rows.dtype)
        landed.copy_(rows, non_blocking=True)
        copied = torch.cuda.current_stream(self._device).record_event()

        def wait() -> Tensor:
            copied.synchronize()
            return landed

        return wait


class Sent:
    """An array of a `Parcel`; called, it is a tensor on the device, once the parcel was sent."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, fill: Fill) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.fill = fill
        self.tensor: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __call__(self) -> Tensor:
        if self.tensor is None:
            raise RuntimeError("the parcel of this array was not sent yet")
        return self.tensor


class Parcel:
    """Arrays of a step, of any number and types, that go to the device in one copy."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory
        self._contents: list[Sent] = []

    def add(self, values: NDArray[Any]) -> Sent:
        """`values` as they are at `send`."""
        return self.fill(values.shape, values.dtype, lambda array: np.copyto(array, values))

    def fill(self, shape: tuple[int, ...], dtype: DTypeLike, fill: Fill) -> Sent:
        """An array that `send` has `fill` write: straight to the memory that is sent.

        It is not zeroed. Arrays are written in the order they were asked for.
        """
        sent = Sent(shape, dtype, fill)
        self._contents.append(sent)
        return sent

    def send(self) -> None:
        """Send all of it; what runs on the device waits for it by itself."""
        if not self._contents:
            return
        places, total = [], 0
        for each in self._contents:
            places.append(slice(total, total + each.nbytes))
            total += -(-each.nbytes // _ALIGNMENT) * _ALIGNMENT
        packed = self._memory.empty(total, dtype=torch.uint8)
        in_host = packed.numpy()
        for place, each in zip(places, self._contents, strict=True):
            each.fill(in_host[place].view(each.dtype).reshape(each.shape))
        there = self._memory.to_device(packed)
        for place, each in zip(places, self._contents, strict=True):
            each.tensor = there[place].view(_torch_dtype(each.dtype)).view(each.shape)


@cache
def _torch_dtype(dtype: "np.dtype[Any]") -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


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
