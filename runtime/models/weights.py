"""Reads a stage's share of a safetensors checkpoint, one file or sharded, and nothing else."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.models.config import CheckpointError, ModelConfig
from runtime.models.decoder import Decoder, build_decoder, layer_weights, tensor_shapes

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

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

    Raises CheckpointError for a range outside the model and for a tensor that is missing or has
    another shape than config.json says.
    """
    if not 0 <= first < end <= config.num_layers:
        raise CheckpointError(
            f"layers [{first}, {end}) are not in {checkpoint}, which has {config.num_layers}; "
            "deploy a plan made for this model"
        )
    shapes = tensor_shapes(config, first, end)
    files = _locate(checkpoint, shapes)
    total_bytes = config.weights_bytes(first, end)
    done_bytes = 0
    progress(0, total_bytes)
    layers = []
    for layer in range(first, end):
        prefix = f"model.layers.{layer}."
        names = [name for name in shapes if name.startswith(prefix)]
        tensors = _read(names, files, shapes, config.dtype, device)
        layers.append(layer_weights(tensors, layer))
        done_bytes += sum(tensor.nbytes for tensor in tensors.values())
        progress(done_bytes, total_bytes)
    others = [name for name in shapes if not name.startswith("model.layers.")]
    tensors = _read(others, files, shapes, config.dtype, device)
    progress(total_bytes, total_bytes)
    return build_decoder(config, tensors, first=first, layers=tuple(layers), device=device)


def _locate(checkpoint: Path, names: Iterable[str]) -> dict[str, Path]:
    """Tensor name -> the file that holds it."""
    index = checkpoint / INDEX_FILE
    if index.exists():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            holders = {str(name): checkpoint / str(file) for name, file in weight_map.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{index} is not a safetensors index ({error!r}); download the checkpoint again"
            ) from error
    else:
        path = checkpoint / SINGLE_FILE
        if not path.exists():
            raise CheckpointError(
                f"{checkpoint} holds neither {SINGLE_FILE} nor {INDEX_FILE}; "
                "give a checkpoint in safetensors format"
            )
        with _open(path) as handle:
            holders = dict.fromkeys(handle.keys(), path)
    files = {}
    for name in names:
        if name not in holders:
            listing = index if index.exists() else checkpoint / SINGLE_FILE
            raise CheckpointError(
                f"tensor {name!r} is missing in {listing}; "
                "download the checkpoint again or choose one with all layers"
            )
        files[name] = holders[name]
    return files


def _read(
    names: list[str],
    files: dict[str, Path],
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Tensor]:
    tensors = {}
    for path in sorted({files[name] for name in names}):
        with _open(path) as handle:
            present = set(handle.keys())
            for name in names:
                if files[name] != path:
                    continue
                if name not in present:
                    raise CheckpointError(
                        f"tensor {name!r} is missing in {path}, where {INDEX_FILE} says it is; "
                        "download the checkpoint again"
                    )
                shape = tuple(handle.get_slice(name).get_shape())
                if shape != shapes[name]:
                    raise CheckpointError(
                        f"tensor {name!r} in {path} has shape {shape}, config.json wants "
                        f"{shapes[name]}; config.json and weights are of different models"
                    )
                # a copy, not a view of the mapped file: the first token must not pay page faults
                tensors[name] = handle.get_tensor(name).to(device=device, dtype=dtype, copy=True)
    return tensors


def _open(path: Path) -> safe_open:
    try:
        return safe_open(str(path), framework="pt")
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist, though {INDEX_FILE} names it; download the checkpoint again"
        ) from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}); download the checkpoint again"
        ) from error
