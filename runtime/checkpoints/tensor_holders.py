"""Which safetensors file of a checkpoint holds which tensor. Loads no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import read_object
from runtime.checkpoints.safetensors_header import read_entries

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def tensor_holders(checkpoint: Path) -> tuple[Path, dict[str, Path]]:
    """The file that lists the tensors, and the file of each: by the index of a sharded checkpoint,
    else by its one file.

    Raises CheckpointError.
    """
    index = checkpoint / INDEX_FILE
    if index.exists():
        raw = read_object(checkpoint, INDEX_FILE) or {}
        files = shard_names(raw, source=str(index))
        return index, {name: checkpoint / file for name, file in files.items()}
    path = checkpoint / SINGLE_FILE
    if not path.exists():
        raise CheckpointError(
            f"{checkpoint} holds neither {SINGLE_FILE} nor {INDEX_FILE}; "
            "give a checkpoint in safetensors format or a GGUF file"
        )
    return path, dict.fromkeys(read_entries(path), path)


def shard_names(index: Mapping[str, Any], *, source: str) -> dict[str, str]:
    """The name of the file of each tensor, by the content of the index `source`.

    Raises CheckpointError.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(
            f"{source} is not a safetensors index: weight_map is {weight_map!r}; "
            "download the checkpoint again"
        )
    return {str(name): _file_name(file, source=source) for name, file in weight_map.items()}


def _file_name(file: object, *, source: str) -> str:
    """Of a file beside the index: the checkpoint's author reaches no other file of the machine."""
    if isinstance(file, str) and file not in ("", ".", "..") and not set(file) & set("/\\\0"):
        return file
    raise CheckpointError(
        f"{source} names the file {str(file)[:80]!r}; files of a checkpoint lie beside its index: "
        "download the checkpoint again, from a source that you trust"
    )
