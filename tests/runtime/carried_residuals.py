"""Stages of vLLM that exchange hidden rows and residuals apart, as vLLM's own pipelines do.

The product sends their sum. vLLM's norm on CPUs takes that sum before it is rounded, so in bfloat16
only stages that carry both compute what whole vLLM does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor
from vllm.ir import ops

from runtime.engine import vllm_compat, vllm_model, vllm_norms
from runtime.engine.step_runner import StepRunner


@contextmanager
def residuals_carried() -> Iterator[None]:
    """While runners that `with_wide_rows` returned take and give rows [T, 2 D].

    Norms are the plain ones, which whole vLLM has on CPUs: `vllm_norms` rounds in other places.
    """
    with (
        patch.object(vllm_norms, "PROVIDER", "native"),  # for the first stage of a process
        ops.rms_norm.set_priority(["native"]),
        ops.fused_add_rms_norm.set_priority(["native"]),
        patch.object(vllm_compat, "stage_tensors", _tensors),
        patch.object(vllm_model.VllmModel, "_rows", lambda _, carried: _rows(carried)),
    ):
        yield


def with_wide_rows(runner: StepRunner) -> StepRunner:
    """The same runner, whose rows are hidden and residual, side by side."""
    runner.shape = replace(runner.shape, hidden_size=2 * runner.shape.hidden_size)
    return runner


def _tensors(
    rows_RE: Tensor, residual_RD: Tensor | None = None, /
) -> vllm_compat.IntermediateTensors:
    if residual_RD is None:
        rows_RE, residual_RD = rows_RE.chunk(2, dim=-1)
    return vllm_compat.IntermediateTensors(
        {"hidden_states": rows_RE.contiguous(), "residual": residual_RD.contiguous()}
    )


def _rows(carried: vllm_compat.IntermediateTensors) -> Tensor:
    hidden_TD, residual_TD = carried["hidden_states"], carried.tensors.get("residual")
    if residual_TD is None:  # embedded tokens
        residual_TD = torch.zeros_like(hidden_TD)
    return torch.cat([hidden_TD, residual_TD], dim=-1)
