"""Loads a stage's share of a checkpoint into memory, and nothing else of it."""

from collections.abc import Callable
from pathlib import Path

import torch

from runtime.models.checkpoint import CheckpointError, TensorFiles
from runtime.models.compact_decoder import (
    CompactDecoder,
    build_decoder,
    layer_shapes,
    layer_weights,
    tensor_shapes,
)
from runtime.models.config import CompactConfig, ModelConfig
from runtime.models.decoder import Decoder

# (done_bytes, total_bytes), called after each layer
Progress = Callable[[int, int], None]


def load_decoder(
    checkpoint: Path,
    config: ModelConfig,
    *,
    first: int,
    end: int,
    device: torch.device,
    progress: Progress,
) -> Decoder:
    """Layers [first, end), in `config.dtype` on `device`, wholly in memory when it returns.

    Raises CheckpointError for a range outside the model and for a tensor that is missing, not
    known to the model, or of another shape than config.json says.
    """
    if not 0 <= first < end <= config.num_layers:
        raise CheckpointError(
            f"layers [{first}, {end}) are not in {checkpoint}, which has {config.num_layers}; "
            "deploy a plan made for this model"
        )
    if isinstance(config, CompactConfig):
        return load_compact(
            checkpoint, config, first=first, end=end, device=device, progress=progress
        )
    from runtime.models.bridge_config import BridgeConfig  # these load transformers: seconds
    from runtime.models.bridge_weights import load_bridged

    if not isinstance(config, BridgeConfig):
        raise TypeError(f"config is a {type(config).__name__}; make it with read_config")
    return load_bridged(checkpoint, config, first=first, end=end, device=device, progress=progress)


def load_compact(
    checkpoint: Path,
    config: CompactConfig,
    *,
    first: int,
    end: int,
    device: torch.device,
    progress: Progress,
) -> CompactDecoder:
    """`load_decoder` for our own families, layer by layer."""
    shapes = tensor_shapes(config, first, end)
    files = TensorFiles.of(checkpoint)
    files.require(shapes)
    _refuse_unknown(files, shapes, first=first, end=end)
    total_bytes = config.weights_bytes(first, end)
    done_bytes = 0
    progress(0, total_bytes)
    layers = []
    for layer in range(first, end):
        tensors = files.read(layer_shapes(config, layer), dtype=config.dtype, device=device)
        layers.append(layer_weights(tensors, layer))
        done_bytes += sum(tensor.nbytes for tensor in tensors.values())
        progress(done_bytes, total_bytes)
    others = {name: shape for name, shape in shapes.items() if not name.startswith("model.layers.")}
    tensors = files.read(others, dtype=config.dtype, device=device)
    progress(total_bytes, total_bytes)
    return build_decoder(config, tensors, first=first, layers=tuple(layers), device=device)


def _refuse_unknown(
    files: TensorFiles, shapes: dict[str, tuple[int, ...]], *, first: int, end: int
) -> None:
    """A tensor of our layers that the model does not have would change its answers if ignored.

    Precomputed rotary frequencies, which old checkpoints carry, follow from config.json.
    """
    ours = tuple(f"model.layers.{layer}." for layer in range(first, end))
    for name in files.holders:
        if name.startswith(ours) and name not in shapes and not name.endswith(".inv_freq"):
            raise CheckpointError(
                f"tensor {name!r} of shape {files.shapes([name])[name]} in {files.holders[name]} "
                "is none that config.json asks for; config.json and weights are of different "
                "models"
            )
