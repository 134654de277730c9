"""The tensors of a checkpoint by name, whichever files hold them: safetensors or GGUF."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
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


OpenFile = Callable[[Path], AbstractContextManager[TensorFile]]


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
                opened=lambda _path: nullcontext(tensors),
            )
        listing, holders = tensor_holders(checkpoint)
        return cls(listing=listing, holders=holders, opened=_LatestFile())

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
        for path, held in self._by_file(names):
            with self.opened(path) as file:
                for name in self._present(file, held, path):
                    found[name] = file.shape(name)
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
            path = self.holders[piece.name]
            with self.opened(path) as file:
                self._present(file, [piece.name], path)
                _check_shape(file, piece, path)
                for part in file.rows(piece.name, *piece.rows):
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

    def _present(self, file: TensorFile, names: list[str], path: Path) -> list[str]:
        present = file.names()
        for name in names:
            if name not in present:
                raise CheckpointError(
                    f"tensor {name!r} is missing in {path}, where {INDEX_FILE} says it is; "
                    "download the checkpoint again"
                )
        return names


def _check_shape(file: TensorFile, piece: Piece, path: Path) -> None:
    found = file.shape(piece.name)
    if found != piece.shape:
        raise CheckpointError(
            f"tensor {piece.name!r} in {path} has shape {found}, config.json wants {piece.shape}; "
            "config.json and weights are of different models"
        )


class _Safetensors:
    """A TensorFile. Rows are one view of the mapped file."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._names = frozenset(handle.keys())

    def names(self) -> Collection[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._handle.get_slice(name).get_shape())

    def rows(self, name: str, start: int, stop: int) -> Iterator[Tensor]:
        tensor: Tensor = self._handle.get_tensor(name)
        yield (tensor if tensor.dim() else tensor[None])[start:stop]


class _LatestFile:
    """Opens files; the latest stays open, for tensors are read in the order of their files."""

    def __init__(self) -> None:
        self._latest: tuple[Path, _Safetensors] | None = None

    def __call__(self, path: Path) -> AbstractContextManager[TensorFile]:
        if self._latest is None or self._latest[0] != path:
            self._latest = None
            self._latest = path, _Safetensors(_open_safetensors(path))
        return nullcontext(self._latest[1])


def _open_safetensors(path: Path) -> safe_open:
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
