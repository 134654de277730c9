"""Memory of many pages that gets another size while some of them are in use.

On CPU it is a range of addresses as long as it will ever be, of which the first pages have memory:
giving the others' back, and taking it again, costs nothing but moving pages that stand in the way.
On a GPU it is taken again as a whole, since nothing else can use a part of what was taken at once.

Legend: P pages, U those in use; a page is of any shape.
"""

import logging
import math
import mmap

import torch
from torch import Tensor

from runtime.engine.pages import PageMoves
from runtime.models.free_memory import free_bytes

logger = logging.getLogger(__name__)

_PAGES_AT_ONCE = 1024


class HostPages:
    """Memory of pages on a CPU. `claimed_bytes` of `pages_P` at least are taken from the system."""

    def __init__(
        self, pages: int, page_shape: tuple[int, ...], *, most: int, dtype: torch.dtype
    ) -> None:
        self._page_shape = page_shape
        self._dtype = dtype
        try:
            self._map, self._all_P = self._reserve(most)
        except OSError as error:  # a kernel that promises no more than it has
            logger.warning("a KV cache of more than %d pages will be copied: %s", pages, error)
            self._map, self._all_P = self._reserve(pages)
        self.pages_P = self._all_P[:pages]
        # written, not only reserved: the memory is truly ours before the stage says it is ready
        self.pages_P.zero_()
        self.claimed_bytes = self.pages_P.nbytes

    def resize(self, pages: int, moves: PageMoves) -> None:
        """Have so many pages, `pages_P`, perhaps elsewhere. What is in those that `moves` names
        stays, where it says; what is in others is left to chance."""
        before_U, after_U = torch.from_numpy(moves.before), torch.from_numpy(moves.after)
        if pages > len(self._all_P):
            kept_P = self.pages_P
            self._map, self._all_P = self._reserve(pages)
            self._all_P[after_U] = kept_P[before_U]
        else:
            moved = before_U != after_U
            self._all_P[after_U[moved]] = self._all_P[before_U[moved]]
        self.pages_P = self._all_P[:pages]
        # what comes back is taken when it is written, for all at once would hold a step up
        self.claimed_bytes = min(self.claimed_bytes, self.pages_P.nbytes)
        from_byte = -(-self.pages_P.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if from_byte < len(self._map):
            self._map.madvise(mmap.MADV_DONTNEED, from_byte, len(self._map) - from_byte)

    def _reserve(self, pages: int) -> tuple[mmap.mmap, Tensor]:
        numbers = pages * math.prod(self._page_shape)
        # not of length 0, which no map can have
        reserved = mmap.mmap(-1, max(1, numbers * self._dtype.itemsize), flags=mmap.MAP_PRIVATE)
        flat = torch.frombuffer(reserved, dtype=torch.uint8)
        all_P = flat[: numbers * self._dtype.itemsize].view(self._dtype)
        return reserved, all_P.view(pages, *self._page_shape)


class DevicePages:
    """Memory of pages on a GPU.

    What is in use waits beside, or on the host where the device has no room for it, and the memory
    before is given back first: no one else may keep `pages_P`.
    """

    def __init__(
        self,
        pages: int,
        page_shape: tuple[int, ...],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._page_shape = page_shape
        self.pages_P = torch.zeros((pages, *page_shape), dtype=dtype, device=device)

    @property
    def claimed_bytes(self) -> int:
        return self.pages_P.nbytes

    def resize(self, pages: int, moves: PageMoves) -> None:
        """See `HostPages`."""
        device, dtype = self.pages_P.device, self.pages_P.dtype
        before_U, after_U = (torch.from_numpy(places) for places in (moves.before, moves.after))
        aside_bytes = len(before_U) * math.prod(self._page_shape) * dtype.itemsize
        place = device if aside_bytes < free_bytes(device) else torch.device("cpu")
        aside_U = copied(self.pages_P, before_U, place=place)
        del self.pages_P
        if device.type == "cuda":
            torch.cuda.empty_cache()
        self.pages_P = torch.zeros((pages, *self._page_shape), dtype=dtype, device=device)
        self.pages_P[after_U.to(device)] = aside_U.to(device)


PageMemory = HostPages | DevicePages


def page_memory(
    pages: int, page_shape: tuple[int, ...], *, most: int, dtype: torch.dtype, device: torch.device
) -> PageMemory:
    """Zeros. `most` pages are the most that it is expected to become."""
    if device.type == "cpu":
        return HostPages(pages, page_shape, most=max(pages, most), dtype=dtype)
    return DevicePages(pages, page_shape, dtype=dtype, device=device)


def copied(pages_P: Tensor, chosen_U: Tensor, *, place: torch.device) -> Tensor:
    """Those pages on `place`, copied a few at a time."""
    copy_U = torch.empty((len(chosen_U), *pages_P.shape[1:]), dtype=pages_P.dtype, device=place)
    for start in range(0, len(chosen_U), _PAGES_AT_ONCE):
        some = slice(start, start + _PAGES_AT_ONCE)
        copy_U[some] = pages_P[chosen_U[some].to(pages_P.device)].to(place)
    return copy_U
