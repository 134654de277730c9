"""A checkpoint directory in Hugging Face layout: its JSON files and its safetensors, by name."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# (done_bytes, total_bytes), called after each layer that was read
Progress = Callable[[int, int], None]


class CheckpointError(Exception):
    """A checkpoint we cannot run; the message names the file, the value and the remedy."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint. Raises CheckpointError."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist; give the directory of a Hugging Face checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds no JSON object; download the checkpoint again")
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows [start, stop), and columns if given, of the tensor `name`, whole `shape` known."""

    name: str
    shape: tuple[int, ...]
    rows: tuple[int, int]
    columns: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, ...]:
        """The shape of the piece itself."""
        lengths = (self.rows[1] - self.rows[0], *self.shape[1:])
        if self.columns is None:
            return lengths
        return (lengths[0], self.columns[1] - self.columns[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFiles:
    """Which file of a checkpoint holds which tensor. Nothing is read until it is asked for."""

    listing: Path
    holders: Mapping[str, Path]

    @classmethod
    def of(cls, checkpoint: Path) -> "TensorFiles":
        """By the index of a sharded checkpoint, else by its one file. Raises CheckpointError."""
        index = checkpoint / INDEX_FILE
        if index.exists():
            weight_map = read_json(index).get("weight_map")
            if not isinstance(weight_map, dict):
                raise CheckpointError(
                    f"{index} is not a safetensors index: weight_map is {weight_map!r}; "
                    "download the checkpoint again"
                )
            return cls(
                listing=index,
                holders={
                    str(name): checkpoint / _file_name(file, index=index)
                    for name, file in weight_map.items()
                },
            )
        path = checkpoint / SINGLE_FILE
        if not path.exists():
            raise CheckpointError(
                f"{checkpoint} holds neither {SINGLE_FILE} nor {INDEX_FILE}; "
                "give a checkpoint in safetensors format"
            )
        with _open(path) as handle:
            return cls(listing=path, holders=dict.fromkeys(handle.keys(), path))

    def require(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises CheckpointError unless the listing names every tensor of `shapes`."""
        for name in shapes:
            if name not in self.holders:
                raise CheckpointError(
                    f"tensor {name!r} is missing in {self.listing}, config.json wants it of shape "
                    f"{shapes[name]}; download the checkpoint again or choose one with all layers"
                )

    def shapes(self, names: list[str]) -> dict[str, tuple[int, ...]]:
        """Shapes of the named tensors, by their files' headers alone. Raises CheckpointError."""
        found = {}
        for path, handle_names in self._by_file(names):
            with _open(path) as handle:
                for name in self._present(handle, handle_names, path):
                    found[name] = tuple(handle.get_slice(name).get_shape())
        return found

    def read(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> dict[str, Tensor]:
        """The tensors named in `shapes`, as copies of the file, converted to `dtype`.

        Raises CheckpointError for one that is missing or has another shape.
        """
        tensors = {}
        for path, names in self._by_file(list(shapes)):
            with _open(path) as handle:
                for name in self._present(handle, names, path):
                    mapped = _mapped(handle, name, shapes[name], path)
                    tensors[name] = mapped.to(device=device, dtype=dtype, copy=True)
        return tensors

    def stack(self, pieces: Sequence[Piece], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The pieces one under the other in `dtype`, each read into its place.

        Nothing stays tied to the file, whose page faults the first token would pay, and nothing
        is held twice. Raises CheckpointError for a tensor missing or of another shape.
        """
        rows = sum(piece.size[0] for piece in pieces)
        stacked = torch.empty((rows, *pieces[0].size[1:]), dtype=dtype, device=device)
        row = 0
        for piece in pieces:
            path = self.holders[piece.name]
            with _open(path) as handle:
                self._present(handle, [piece.name], path)
                part = _mapped(handle, piece.name, piece.shape, path)[slice(*piece.rows)]
                if piece.columns is not None:
                    part = part[:, slice(*piece.columns)]
                stacked[row : row + len(part)].copy_(part)
            row += len(part)
        return stacked

    def _by_file(self, names: list[str]) -> list[tuple[Path, list[str]]]:
        files: dict[Path, list[str]] = {}
        for name in names:
            files.setdefault(self.holders[name], []).append(name)
        return sorted(files.items())

    def _present(self, handle: safe_open, names: list[str], path: Path) -> list[str]:
        present = set(handle.keys())  # type: ignore[no-untyped-call]
        for name in names:
            if name not in present:
                raise CheckpointError(
                    f"tensor {name!r} is missing in {path}, where {INDEX_FILE} says it is; "
                    "download the checkpoint again"
                )
        return names


def _file_name(file: object, *, index: Path) -> str:
    """Of a file beside the index: who made the checkpoint has no say over others on the machine."""
    if isinstance(file, str) and file not in ("", ".", "..") and not set(file) & set("/\\\0"):
        return file
    raise CheckpointError(
        f"{index} names the file {str(file)[:80]!r}; files of a checkpoint lie beside its index: "
        "download the checkpoint again, from a source that you trust"
    )


def _mapped(handle: Any, name: str, shape: tuple[int, ...], path: Path) -> Tensor:
    """A view of the mapped file."""
    found = tuple(handle.get_slice(name).get_shape())
    if found != shape:
        raise CheckpointError(
            f"tensor {name!r} in {path} has shape {found}, config.json wants {shape}; "
            "config.json and weights are of different models"
        )
    tensor: Tensor = handle.get_tensor(name)
    return tensor


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
