"""Loads a stage's share of a checkpoint into memory, and nothing else of it."""

from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from torch import Tensor

from runtime.models.checkpoint import CheckpointError, Piece, Progress, TensorFiles
from runtime.models.compact_decoder import (
    CompactDecoder,
    build_decoder,
    stack_layer,
    tensor_shapes,
)
from runtime.models.config import CompactConfig
from runtime.models.decoder import Decoder
from runtime.models.free_memory import require_memory
from runtime.models.model_config import ModelConfig
from runtime.models.ranks import ALONE, Ranks
from runtime.models.sharding import shard_config


def load_decoder(
    checkpoint: Path,
    config: ModelConfig,
    *,
    first: int,
    end: int,
    device: torch.device,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> Decoder:
    """Layers [first, end), in `config.dtype` on `device`, wholly in memory when it returns.

    Raises CheckpointError for a range outside the model and for a tensor that is missing, not
    known to the model, or of another shape than config.json says; MemoryTooSmall, before anything
    is read, when the weights are more than what is free.
    """
    if not 0 <= first < end <= config.num_layers:
        raise CheckpointError(
            f"layers [{first}, {end}) are not in {checkpoint}, which has {config.num_layers}; "
            "deploy a plan made for this model"
        )
    own = shard_config(config, ranks.shard) if isinstance(config, CompactConfig) else config
    require_memory(device, needed_bytes=own.weights_bytes(first, end), first=first, end=end)
    if isinstance(config, CompactConfig):
        return load_compact(
            checkpoint,
            config,
            first=first,
            end=end,
            device=device,
            progress=progress,
            ranks=ranks,
        )
    from runtime.models.bridge_config import BridgeConfig  # these load transformers: seconds
    from runtime.models.bridge_weights import load_bridged

    if ranks.shard.ranks > 1:
        require_shared(checkpoint, config, ranks=ranks.shard.ranks)
    if not isinstance(config, BridgeConfig):
        raise TypeError(f"config is a {type(config).__name__}; make it with read_config")
    return load_bridged(checkpoint, config, first=first, end=end, device=device, progress=progress)


def require_shared(checkpoint: Path, config: ModelConfig, *, ranks: int) -> CompactConfig:
    """The config of a model whose layers several ranks can share. Raises CheckpointError."""
    if isinstance(config, CompactConfig):
        return config
    raise CheckpointError(
        f"{checkpoint} is of a family that only the bridge runs, which cannot share a layer among "
        f"{ranks} ranks; deploy it without tensor parallelism"
    )


def wanted_tensors(
    config: ModelConfig, names: Collection[str], *, first: int, end: int
) -> set[str]:
    """Of the tensors `names` of a checkpoint those that `load_decoder` reads, or refuses."""
    if isinstance(config, CompactConfig):
        ours = _prefixes(first, end)
        unknown = {name for name in names if name.startswith(ours) and not _follows(name)}
        return unknown | tensor_shapes(config, first, end).keys()
    from runtime.models.bridge_config import BridgeConfig  # these load transformers: seconds
    from runtime.models.bridge_weights import bridged_tensors

    if not isinstance(config, BridgeConfig):
        raise TypeError(f"config is a {type(config).__name__}; make it with read_config")
    return bridged_tensors(config, names, first=first, end=end)


def load_compact(
    checkpoint: Path,
    config: CompactConfig,
    *,
    first: int,
    end: int,
    device: torch.device,
    progress: Progress,
    ranks: Ranks,
) -> CompactDecoder:
    """`load_decoder` for our own families, layer by layer, each tensor read into its place.

    `config` is the whole model's; of several ranks each reads and holds its own pieces.
    """
    shapes = tensor_shapes(config, first, end)
    files = TensorFiles.of(checkpoint)
    files.require(shapes)
    _refuse_unknown(files, shapes, first=first, end=end)
    total_bytes = shard_config(config, ranks.shard).weights_bytes(first, end)
    done_bytes = 0
    progress(0, total_bytes)

    def stack(pieces: Sequence[Piece]) -> Tensor:
        return files.stack(pieces, dtype=config.dtype, device=device)

    layers = {}
    for layer in range(first, end):
        layers[layer] = stack_layer(config, layer, stack, ranks.shard)
        done_bytes += layers[layer].nbytes
        progress(done_bytes, total_bytes)
    decoder = build_decoder(config, layers=layers, stack=stack, ranks=ranks, device=device)
    progress(total_bytes, total_bytes)
    return decoder


def _refuse_unknown(
    files: TensorFiles, shapes: dict[str, tuple[int, ...]], *, first: int, end: int
) -> None:
    """A tensor of our layers that the model does not have would change its answers if ignored."""
    ours = _prefixes(first, end)
    for name in files.holders:
        if name.startswith(ours) and name not in shapes and not _follows(name):
            raise CheckpointError(
                f"tensor {name!r} of shape {files.shapes([name])[name]} in {files.holders[name]} "
                "is none that config.json asks for; config.json and weights are of different "
                "models"
            )


def _prefixes(first: int, end: int) -> tuple[str, ...]:
    return tuple(f"model.layers.{layer}." for layer in range(first, end))


def _follows(name: str) -> bool:
    """True for precomputed rotary frequencies of old checkpoints, which follow from config.json."""
    return name.endswith(".inv_freq")
