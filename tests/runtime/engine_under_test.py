"""The engine that tests of stages run: HelixWeb's own, or vLLM's model code.

`HELIX_TEST_ENGINE=vllm` chooses vLLM; pytest then runs in vLLM's environment (`make test-vllm`).
"""

import os
from pathlib import Path
from typing import Any

import torch

from runtime.engine.backend import Opened
from runtime.engine.grammar import Grammars
from runtime.engine.helix_engine import HelixEngine
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_runner import ModelRunner
from runtime.engine.opening import open_stage
from runtime.engine.ranks import Runner
from runtime.engine.step_runner import StepRunner
from runtime.models.config import read_config
from runtime.models.weights import load_decoder
from runtime.protocol.stage_pipe import StageLaunch

ENGINE = os.environ.get("HELIX_TEST_ENGINE", "helix")
IS_VLLM = ENGINE == "vllm"
# vLLM's attention has neither shorter pages nor smaller heads
PAGE_TOKENS = 16 if IS_VLLM else 4
HEAD_SIZE = 32 if IS_VLLM else None


def no_progress(_done: int, _total: int) -> None:
    """What loads gets this where nobody looks."""


def make_runner(
    checkpoint: Path,
    layers: range,
    *,
    pages: int,
    max_context_tokens: int,
    max_batch_tokens: int = 16,
    engine: str = ENGINE,
    computed_in: str = "",
    wire_dtype: torch.dtype | None = None,
) -> StepRunner:
    """Runs `layers` of the checkpoint with a cache of `pages` pages, in its own type if none is
    named."""
    if engine == "vllm":
        from runtime.checkpoints.model_facts import read_sizes
        from runtime.engine.vllm_loading import check_layers

        sizes = read_sizes(checkpoint)
        sizes = sizes.computed_in(computed_in or sizes.dtype_name)
        limits = EngineLimits(
            page_tokens=PAGE_TOKENS,
            max_batch_tokens=max_batch_tokens,
            max_context_tokens=max_context_tokens,
        )
        opened = check_layers(checkpoint, sizes, layers, limits=limits).read(no_progress)
        return opened.runner(pages=pages, wire_dtype=wire_dtype)
    config, cpu = read_config(checkpoint), torch.device("cpu")
    config = config.computed_in(computed_in or config.dtype_name)
    decoder = load_decoder(
        checkpoint,
        config,
        first=layers.start,
        end=layers.stop,
        device=cpu,
        progress=no_progress,
    )
    cache = KvCache(config, pages=pages, page_tokens=PAGE_TOKENS, device=cpu)
    return ModelRunner(decoder, cache, max_context_tokens=max_context_tokens, wire_dtype=wire_dtype)


def backend_of(runner: Runner, checkpoint: Path) -> ModelBackend:
    """Samples behind the rows of `runner`."""
    return ModelBackend(runner, grammars=Grammars(checkpoint, vocab_size=runner.shape.vocab_size))


def open_launch(launch: StageLaunch) -> Opened:
    """As the process of a stage opens it."""
    if IS_VLLM:
        from runtime.engine.vllm_engine import VllmEngine

        return open_stage(launch, VllmEngine, progress=no_progress, on_lost=lambda message: None)
    return open_stage(launch, HelixEngine, progress=no_progress, on_lost=lambda message: None)


def fill_pages(runner: Runner, value: float) -> None:
    """What requests before left in every page."""
    cache = runner.cache
    if isinstance(cache, KvCache):
        cache.key_PSKH.fill_(value)
        cache.value_PSKH.fill_(value)
    else:
        cache.pool_PB.view(runner.shape.dtype).fill_(value)  # type: ignore[attr-defined]


def vllm_bytes(runner: Any) -> int:
    """Of the layers, tables and last norm that models of vLLM's have, each table once."""
    sizes, layers, tables = runner._sizes, [], set()
    for model in runner._models:
        layers += [layer for layer, one in enumerate(model._loop.layers) if [*one.children()]]
        tables |= {
            module.weight.data_ptr()
            for module in model._model.modules()
            if hasattr(module, "num_embeddings_padded")
        }
    norm_bytes = sizes.hidden_size * sizes.element_bytes * (sizes.num_layers - 1 in layers)
    layers_bytes = sum(sizes.layer_bytes[layer] for layer in layers)
    return int(layers_bytes + len(tables) * sizes.embedding_bytes + norm_bytes)
