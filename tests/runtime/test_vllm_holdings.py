"""What vLLM's models leave in memory when a stage forgets their layers."""

import gc
import importlib
import weakref
from pathlib import Path

import pytest
from engine_under_test import IS_VLLM
from family_checkpoints import LAYERS, save
from stage_cluster import StageCluster
from torch import nn

pytestmark = pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")


@pytest.mark.parametrize("name", ["Qwen3", "Qwen3-MoE"])
def test_forgotten_layers_leave_nothing_in_memory(name: str, tmp_path: Path) -> None:
    # an import that failed within vLLM's keeps the frames it was asked for in, with their locals
    importlib.import_module("runtime.engine.vllm_loading")
    from vllm_families import VLLM_FAMILIES

    save(VLLM_FAMILIES[name], tmp_path, seed=1)
    cluster = StageCluster(tmp_path, {"solo": (0, LAYERS)})
    cluster.prompt(1, range(7, 40), [("solo", 0, LAYERS)])
    cluster.run_all()
    cluster.release_all()
    runner = cluster.runners["solo"]
    model = weakref.ref(runner.cache.models[0])  # type: ignore[attr-defined]
    layers = [modules(layer) for layer in runner.cache.models[0]._loop.layers]  # type: ignore[attr-defined]
    runner.forget(range(3))  # type: ignore[attr-defined]
    gc.collect()
    assert [bool(alive(layer)) for layer in layers] == [False] * 3 + [True] * 3
    runner.forget(range(3, LAYERS))  # type: ignore[attr-defined]
    gc.collect()
    assert not any(alive(layer) for layer in layers)
    assert model() is None


def modules(layer: nn.Module) -> list[weakref.ref[nn.Module]]:
    """The layer, and what is in it that has weights; all layers share their rotation."""
    held = [module for module in layer.modules() if [*module.parameters(recurse=False)]]
    return [weakref.ref(module) for module in [layer, *held]]


def alive(references: list[weakref.ref[nn.Module]]) -> list[nn.Module]:
    return [module for reference in references if (module := reference()) is not None]
