"""Pages beside the largest step, which ran on the device before."""

import pytest

from runtime.engine.largest_step import DeviceMemory, pages_beside_step
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall

LIMITS = EngineLimits(
    page_tokens=16, max_batch_tokens=32, max_context_tokens=160, reserve_bytes=1_000
)


class ToyMemory(DeviceMemory):
    """A device with `free` bytes beside what tensors of this process take."""

    def __init__(self, *, allocated: int, free: int) -> None:
        self._allocated = self._peak = allocated
        self._free = free

    def step(self, rows: int) -> None:
        """Takes 100 bytes a row, and keeps 1 000 of them for the next step."""
        kept = 0 if self._peak > self._allocated else 1_000
        self._peak = self._allocated + 100 * rows
        self._allocated += kept
        self._free -= kept

    def allocated_bytes(self) -> int:
        return self._allocated

    def begin_peak(self) -> None:
        self._peak = self._allocated

    def peak_bytes(self) -> int:
        return self._peak

    def free_bytes(self) -> int:
        return self._free


def pages(memory: ToyMemory, *, budget: int) -> int:
    return pages_beside_step(
        memory.step, memory, LIMITS, budget_bytes=budget, page_bytes=100, n_layers=2
    )


def test_pages_get_the_rest_of_the_budget_but_a_twentieth() -> None:
    memory = ToyMemory(allocated=50_000, free=10**9)
    # 100 000 - 50 000 of weights - 64 rows of 100 bytes - 1 000 in reserve
    assert pages(memory, budget=100_000) == int(42_600 * 0.95) // 100


def test_what_other_processes_hold_is_not_given_out() -> None:
    memory = ToyMemory(allocated=50_000, free=20_000)
    # 19 000 are free behind the step, which keeps 1 000 of the 6 400 that any step takes
    assert pages(memory, budget=10**9) == int(12_600 * 0.95) // 100


def test_too_little_for_one_request_is_told_with_the_measured_step() -> None:
    memory = ToyMemory(allocated=50_000, free=10**9)
    with pytest.raises(BudgetTooSmall, match=r"64 rows \(6400 bytes, measured\)"):
        pages(memory, budget=59_000)
