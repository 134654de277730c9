"""RMSNorm on CPUs by vLLM's C++ kernels.

vLLM has them, and registers them for GPUs only: on CPUs it expects torch.compile to fuse the plain
operations. A stage runs eagerly, where they take a tenth of a decode step.
"""

import torch
from torch import Tensor
from vllm.ir import ops
from vllm.platforms import current_platform

PROVIDER = "helix_cpu"


def register() -> None:
    """Offer the kernels to vLLM's dispatch, once per process."""
    if PROVIDER in ops.rms_norm.impls:
        return
    current_platform.import_kernels()
    ops.rms_norm.register_impl(
        PROVIDER,
        supports_args=lambda x, weight, epsilon, variance_size=None: (
            _is_plain(x, weight, variance_size) and x.is_contiguous()
        ),
    )(_rms_norm)
    ops.fused_add_rms_norm.register_impl(
        PROVIDER,
        supports_args=lambda x, x_residual, weight, epsilon, variance_size=None: (
            _is_plain(x, weight, variance_size) and x.is_contiguous() and x_residual.is_contiguous()
        ),
        inplace=True,
    )(_fused_add_rms_norm)


def _is_plain(x: Tensor, weight: Tensor | None, variance_size: int | None) -> bool:
    """What the kernels compute: the whole row, scaled by weights of its own type."""
    return variance_size is None and weight is not None and weight.dtype == x.dtype


def _rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weight, epsilon)
    return out


def _fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual
