"""The tensors of a checkpoint by name, whichever files hold them: safetensors or GGUF."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.checkpoints.errors import CheckpointError as CheckpointError
from runtime.checkpoints.metadata import gguf_file
from runtime.checkpoints.tensor_holders import INDEX_FILE, tensor_holders

# (done_bytes, total_bytes), called after each layer that was read
Progress = Callable[[int, int], None]


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


class TensorFile(Protocol):
    """One open file with tensors."""

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def rows(self, name: str, start: int, stop: int) -> Iterator[Tensor]:
        """Rows [start, stop) of a tensor in order, in pieces that may be views of the file."""


OpenFile = Callable[[Path], TensorFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFiles:
    """Which file of a checkpoint holds which tensor. Nothing is read until it is asked for.

    `opened` opens one of the files.
    """

    listing: Path
    holders: Mapping[str, Path]
    opened: OpenFile

    @classmethod
    def of(cls, checkpoint: Path) -> "TensorFiles":
        """By the GGUF file, else by the index of a sharded checkpoint, else by its one file.

        Raises CheckpointError.
        """
        gguf = gguf_file(checkpoint)
        if gguf is not None:
            from runtime.models.gguf_tensors import GgufTensors  # loads gguf

            tensors = GgufTensors.of(gguf)
            return cls(
                listing=gguf,
                holders=dict.fromkeys(tensors.names(), gguf),
                opened=lambda _path: tensors,
            )
        listing, holders = tensor_holders(checkpoint)
        # the latest stays open, for tensors are read in the order of their files
        return cls(listing=listing, holders=holders, opened=lru_cache(maxsize=1)(_Safetensors))

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
        by_file = sorted(names, key=self.holders.__getitem__)
        return {name: self._file_of(name).shape(name) for name in by_file}

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
        return {
            name: self.stack(
                [Piece(name=name, shape=shape, rows=(0, shape[0] if shape else 1))],
                dtype=dtype,
                device=device,
            ).reshape(shape)
            for name, shape in shapes.items()
        }

    def stack(self, pieces: Sequence[Piece], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The pieces one under the other in `dtype`, each read into its place.

        Nothing stays tied to the file, whose page faults the first token would pay, and nothing
        is held twice. Raises CheckpointError for a tensor missing or of another shape.
        """
        rows = sum(piece.size[0] for piece in pieces)
        stacked = torch.empty((rows, *pieces[0].size[1:]), dtype=dtype, device=device)
        row = 0
        for piece in pieces:
            file = self._file_of(piece.name)
            found = file.shape(piece.name)
            if found != piece.shape:
                raise CheckpointError(
                    f"tensor {piece.name!r} in {self.holders[piece.name]} has shape {found}, "
                    f"config.json wants {piece.shape}; config.json and weights are of different "
                    "models"
                )
            for part in file.rows(piece.name, *piece.rows):
                if piece.columns is not None:
                    part = part[:, slice(*piece.columns)]
                stacked[row : row + len(part)].copy_(part)
                row += len(part)
        return stacked

    def _file_of(self, name: str) -> TensorFile:
        """The open file that holds the tensor. Raises CheckpointError."""
        path = self.holders[name]
        file = self.opened(path)
        if name not in file.names():
            raise CheckpointError(
                f"tensor {name!r} is missing in {path}, where {INDEX_FILE} says it is; "
                "download the checkpoint again"
            )
        return file


class _Safetensors:
    """A TensorFile. Rows are one view of the mapped file."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError."""
        self._handle = _open_safetensors(path)
        self._names = frozenset(self._handle.keys())

    def names(self) -> Collection[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._handle.get_slice(name).get_shape())

    def rows(self, name: str, start: int, stop: int) -> Iterator[Tensor]:
        tensor: Tensor = self._handle.get_tensor(name)
        yield (tensor if tensor.dim() else tensor[None])[start:stop]


def _open_safetensors(path: Path) -> Any:
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
