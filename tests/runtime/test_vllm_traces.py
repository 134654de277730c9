"""Layers of vLLM's models run without their modules."""

from pathlib import Path
from typing import Any

import pytest
import torch
from engine_under_test import IS_VLLM
from family_checkpoints import LAYERS, save
from stage_cluster import StageCluster
from torch import Tensor, nn

pytestmark = pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")


@pytest.mark.parametrize("name", ["Llama", "Gemma 3", "Qwen3-MoE", "DeepSeek-V2, yarn"])
def test_all_layers_are_traced(name: str, tmp_path: Path) -> None:
    from vllm_families import VLLM_FAMILIES

    save(VLLM_FAMILIES[name], tmp_path, seed=1)
    cluster = StageCluster(tmp_path, {"part": (1, LAYERS)})
    model = cluster.runners["part"]._models[0]  # type: ignore[attr-defined]
    assert [is_traced(layer) for layer in model._loop.layers] == [False] + [True] * (LAYERS - 1)


class Layer(nn.Module):
    """Writes to what it gets, as vLLM's layers do."""

    def __init__(self, *, scale: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.scale = scale

    def forward(
        self, positions_T: Tensor, hidden_TD: Tensor, residual_TD: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        product_TD = hidden_TD @ self.weight * self.scale + positions_T[:, None]
        if residual_TD is not None:
            residual_TD += product_TD
        return product_TD, residual_TD


class BranchingLayer(Layer):
    """What it computes depends on numbers, which no trace has."""

    def forward(
        self, positions_T: Tensor, hidden_TD: Tensor, residual_TD: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if hidden_TD.sum() > 0:
            hidden_TD = -hidden_TD
        return super().forward(positions_T, hidden_TD, residual_TD)


def traced(*layers: nn.Module) -> list[nn.Module]:
    """The layers, after an attempt to trace them."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper

    from runtime.engine.vllm_traces import trace_layers

    class Model(nn.Module, TorchCompileWithNoGuardsWrapper):
        def __init__(self) -> None:
            nn.Module.__init__(self)

        def forward(self, *args: Any, **named: Any) -> None:
            raise AssertionError("only the layers are called here")

    trace_layers(Model(), layers, lambda: [layer(*rows(7)) for layer in layers])
    return [*layers]


def rows(count: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.arange(count), torch.randn(count, 3), torch.randn(count, 3)


def is_traced(layer: nn.Module) -> bool:
    return "forward" in vars(layer)


@torch.inference_mode()
def check_same(layer: nn.Module, count: int) -> None:
    """As computed by its class."""
    positions_T, hidden_TD, residual_TD = rows(count)
    expected = type(layer).forward(layer, positions_T, hidden_TD.clone(), residual_TD.clone())
    found = layer(positions_T, hidden_TD.clone(), residual_TD.clone())
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_traces_keep_weights_and_constants_of_their_layers(count: int) -> None:
    for layer in traced(Layer(scale=1), Layer(scale=1), Layer(scale=2), Layer(scale=1)):
        assert is_traced(layer)
        check_same(layer, count)


def test_what_a_layer_returns_of_its_arguments_is_the_argument() -> None:
    (layer,) = traced(Layer(scale=1))
    positions_T, hidden_TD, residual_TD = rows(2)
    with torch.inference_mode():
        assert layer(positions_T, hidden_TD, residual_TD)[1] is residual_TD


def test_a_call_of_another_form_runs_the_modules() -> None:
    (layer,) = traced(Layer(scale=1))
    positions_T, hidden_TD, _ = rows(2)
    expected_TD, _ = type(layer).forward(layer, positions_T, hidden_TD, None)
    found_TD, nothing = layer(positions_T, hidden_TD, residual_TD=None)
    assert torch.equal(found_TD, expected_TD)
    assert nothing is None


def test_layers_that_cannot_be_traced_run_as_they_are() -> None:
    for layer in traced(Layer(scale=1), BranchingLayer(scale=1)):
        assert not is_traced(layer)
        check_same(layer, 2)


def test_models_that_vllm_does_not_mark_for_its_compiler_are_not_traced() -> None:
    from runtime.engine.vllm_traces import trace_layers

    layer = Layer(scale=1)
    trace_layers(nn.Sequential(layer), [layer], lambda: layer(*rows(7)))
    assert not is_traced(layer)
