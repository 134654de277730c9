"""What the largest step of a stage takes of its GPU, found by running it.

An estimate from sizes knows nothing of the kernels that vLLM chose: packed weights, experts and MLA
take scratch memory of their own. So after the weights are read, as many rows as a step may have run
through all layers, without attention, and the pages get what is left.
"""

from collections.abc import Callable

import torch

from runtime.engine.limits import EngineLimits
from runtime.engine.memory import BudgetTooSmall

_PAGES_SHARE = 0.95  # the rest is for what attention takes in a step: it did not run


class DeviceMemory:
    """The memory of a GPU of CUDA or ROCm, as far as this process is concerned."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocated_bytes(self) -> int:
        """Taken by tensors now."""
        return torch.cuda.memory_allocated(self._device)

    def begin_peak(self) -> None:
        """Let `peak_bytes` begin with what is taken now."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        """The most that was taken by tensors since `begin_peak`."""
        return torch.cuda.max_memory_allocated(self._device)

    def free_bytes(self) -> int:
        """Neither taken by tensors of this process nor by other processes."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._device)[0])


def pages_beside_step(
    run_step: Callable[[int], object],
    memory: DeviceMemory,
    limits: EngineLimits,
    *,
    budget_bytes: int,
    page_bytes: int,
    n_layers: int,
) -> int:
    """Pages for the KV cache of a stage of `n_layers` layers, whose weights are in memory.

    `run_step` runs a step of so many rows. Raises BudgetTooSmall when one request of
    `max_context_tokens` does not fit.
    """
    weights_bytes = memory.allocated_bytes()
    memory.begin_peak()
    run_step(limits.most_rows)
    step_bytes = memory.peak_bytes() - weights_bytes
    # what the step keeps, such as the workspace of experts, is taken in any step
    kept_bytes = memory.allocated_bytes() - weights_bytes
    free_bytes = memory.free_bytes() + kept_bytes
    left_bytes = min(budget_bytes - weights_bytes, free_bytes) - step_bytes - limits.reserve_bytes
    pages = int(left_bytes * _PAGES_SHARE) // page_bytes
    least = limits.context_pages * n_layers
    if pages < least:
        raise BudgetTooSmall(
            f"beside {weights_bytes} bytes of weights, a step of {limits.most_rows} rows "
            f"({step_bytes} bytes, measured) and a reserve of {limits.reserve_bytes}, "
            f"{max(0, left_bytes)} bytes are left of the budget of {budget_bytes} and of what is "
            f"free on the GPU; the KV cache of one request of {limits.max_context_tokens} tokens "
            f"needs {int(least * page_bytes / _PAGES_SHARE)}: give the node fewer layers, deploy "
            "with smaller steps or a shorter context, or end what else uses the GPU"
        )
    return pages
