"""Fills a stage's share of a `transformers` skeleton from a checkpoint, layer by layer."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils.logging import disable_progress_bar

from runtime.models.bridge_check import check_bridge
from runtime.models.bridge_config import BridgeConfig, build_skeleton
from runtime.models.checkpoint import CheckpointError, Progress, TensorFiles
from runtime.models.hf_bridge import BridgedDecoder, bridge


def load_bridged(
    checkpoint: Path,
    config: BridgeConfig,
    *,
    first: int,
    end: int,
    device: torch.device,
    progress: Progress,
) -> BridgedDecoder:
    """`load_decoder` for models that only `transformers` knows.

    Checkpoint names and layouts that differ from the model's (an expert per tensor, say) are
    converted by `transformers` itself.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]  # ours is `progress`
    files = TensorFiles.of(checkpoint)
    model = build_skeleton(config.hf)
    slots = model.get_submodule(config.layers)
    total_bytes = config.weights_bytes(first, end)
    done_bytes = 0
    progress(0, total_bytes)
    of_layers, others = _by_layer(config, files.holders)
    for layer in range(first, end):
        wanted = {
            f"{config.layers}.{layer}.{name}" for name, _ in slots[layer].named_parameters()
        } | {f"{config.layers}.{layer}.{name}" for name, _ in _kept_buffers(slots[layer])}
        _fill(model, files, of_layers[layer], wanted, config=config, device=device)
        done_bytes += config.layer_bytes[layer]
        progress(done_bytes, total_bytes)
    _fill_rest(model, files, others, config=config, first=first, end=end, device=device)
    for name, buffer in model.named_non_persistent_buffers():
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, buffer.to(device))
    decoder = bridge(config, model, first=first, end=end, device=device)
    check_bridge(decoder)
    progress(total_bytes, total_bytes)
    return decoder


def bridged_tensors(
    config: BridgeConfig, names: Iterable[str], *, first: int, end: int
) -> set[str]:
    """Of the tensors `names` of a checkpoint those that `load_bridged` reads."""
    of_layers, others = _by_layer(config, names)
    skipped = _skipped_tables(build_skeleton(config.hf), config, first=first, end=end)
    return {name for layer in range(first, end) for name in of_layers[layer]} | (
        set(others) - skipped
    )


def _by_layer(config: BridgeConfig, names: Iterable[str]) -> tuple[dict[int, list[str]], list[str]]:
    """The names of each layer, and those of no layer."""
    of_layers: dict[int, list[str]] = {layer: [] for layer in range(config.num_layers)}
    others = []
    list_name = config.layers.rpartition(".")[2]
    pattern = re.compile(rf"(?:^|\.){re.escape(list_name)}\.(\d+)\.")
    for name in names:
        found = pattern.search(name)
        if found is None:
            others.append(name)
        elif int(found[1]) in of_layers:
            of_layers[int(found[1])].append(name)
    return of_layers, others


def _skipped_tables(model: Any, config: BridgeConfig, *, first: int, end: int) -> set[str]:
    """Parameters of embedding and head that a stage does not hold."""
    tables = {
        "embedding": model.get_input_embeddings(),
        "head": model.get_output_embeddings(),
    }
    names = {
        part: {f"{name}.{inner}" for inner, _ in module.named_parameters()}
        for part, table in tables.items()
        for name, module in model.named_modules()
        if module is table
    }
    last = end == config.num_layers
    skipped: set[str] = set()
    if first > 0 and not (last and config.tie_word_embeddings):
        skipped |= names["embedding"]
    if not last or config.tie_word_embeddings:
        skipped |= {name for name in names["head"] if name.endswith(".weight")}
    return skipped


def _fill_rest(
    model: Any,
    files: TensorFiles,
    names: list[str],
    *,
    config: BridgeConfig,
    first: int,
    end: int,
    device: torch.device,
) -> None:
    """Norms and the like on every stage; the token table where tokens come in, the head where
    they go out, one table for both where they are tied."""
    skipped = _skipped_tables(model, config, first=first, end=end)
    layer_prefix = config.layers + "."
    wanted = {name for name, _ in model.named_parameters() if not name.startswith(layer_prefix)}
    read = [name for name in names if name not in skipped]
    _fill(model, files, read, wanted - skipped, config=config, device=device)
    if end == config.num_layers and config.tie_word_embeddings:
        embedding = model.get_input_embeddings()
        model.get_output_embeddings().weight = embedding.weight
        if first > 0:
            embedding.weight = nn.Parameter(embedding.weight.to("meta"), requires_grad=False)


def _kept_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    kept = set(module.state_dict())
    return [(name, buffer) for name, buffer in module.named_buffers() if name in kept]


def _fill(
    model: Any,
    files: TensorFiles,
    names: list[str],
    wanted: set[str],
    *,
    config: BridgeConfig,
    device: torch.device,
) -> None:
    """Read `names` and put them where they belong. Raises CheckpointError unless they are, under
    the model's names, exactly `wanted`, each of its shape."""
    tensors = files.read(files.shapes(names), dtype=config.dtype, device=device)
    conversions: Any = get_model_conversion_mapping(model)
    info, _ = convert_and_load_state_dict_in_model(
        model,
        tensors,
        LoadStateDictConfig(
            weight_mapping=conversions,
            device_map={"": device},
            dtype=config.dtype,
            ignore_mismatched_sizes=True,
        ),
    )
    where = f"{files.listing} (model_type {config.hf.model_type!r})"
    for name, found, expected in sorted(info.mismatched_keys):
        raise CheckpointError(
            f"tensor {name!r} in {where} has shape {tuple(found)}, config.json wants "
            f"{tuple(expected)}; config.json and weights are of different models"
        )
    for name, message in info.conversion_errors.items():
        raise CheckpointError(f"tensor {name!r} in {where} does not fit the model: {message}")
    missing = sorted(wanted & info.missing_keys)
    if missing:
        shape = tuple(model.get_parameter_or_buffer(missing[0]).shape)
        raise CheckpointError(
            f"tensor {missing[0]!r} is missing in {where}, config.json wants it of shape {shape}; "
            "download the checkpoint again or choose one with all layers"
        )
    unknown = sorted(name for name in info.unexpected_keys if not name.endswith(".inv_freq"))
    if unknown:
        raise CheckpointError(
            f"tensor {unknown[0]!r} in {where} is none that config.json asks for; config.json and "
            "weights are of different models"
        )
