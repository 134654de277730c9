"""The header of a safetensors file: which tensors it holds, of which shapes. Loads no torch.

A file starts with the header's length (8 bytes, little-endian), then the header as JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from runtime.checkpoints.errors import CheckpointError

LENGTH_BYTES = 8
_LONGEST_HEADER_BYTES = 100_000_000  # as the safetensors package allows
METADATA = "__metadata__"
# bits of one number
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16,
    "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """What a header says of one tensor: bytes [begin, end) after the header are its numbers."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


def read_entries(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file by name, by its header. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            header, data_bytes = read_header(file, source=str(path))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    return parse_header(header, data_bytes=data_bytes, source=str(path))


def read_header(file: BinaryIO, *, source: str) -> tuple[bytes, int]:
    """The header of a file, up to the data, and the bytes of those. Raises CheckpointError."""
    file_bytes = file.seek(0, 2)
    file.seek(0)
    length = header_length(file.read(LENGTH_BYTES), file_bytes=file_bytes, source=source)
    return file.read(length), file_bytes - LENGTH_BYTES - length


def header_length(start: bytes, *, file_bytes: int, source: str) -> int:
    """Bytes of the header, by the first `LENGTH_BYTES` of the file `source`.

    Raises CheckpointError.
    """
    length = int.from_bytes(start, "little")
    most = min(file_bytes - LENGTH_BYTES, _LONGEST_HEADER_BYTES)
    if len(start) < LENGTH_BYTES or length > most:
        raise _damaged(source, f"a header of {length} bytes does not fit into it")
    return length


def parse_header(header: bytes, *, data_bytes: int, source: str) -> dict[str, TensorEntry]:
    """The tensors by name, by the header of the file `source`, which `data_bytes` follow.

    Raises CheckpointError for tensors that are not where the header says.
    """
    try:
        raw = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"its header is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise _damaged(source, "its header is not a JSON object")
    return {
        name: _entry(name, told, data_bytes, source)
        for name, told in raw.items()
        if name != METADATA
    }


def _entry(name: str, told: Any, data_bytes: int, source: str) -> TensorEntry:
    told = told if isinstance(told, Mapping) else {}
    shape, places, dtype = told.get("shape"), told.get("data_offsets"), str(told.get("dtype"))
    bits = _BITS.get(dtype)
    if not _are_counts(shape) or not _are_counts(places) or len(places) != 2 or bits is None:
        raise _damaged(source, f"tensor {name[:80]!r} has no shape, type or place")
    begin, end = places
    if end > data_bytes or (end - begin) * 8 != prod(shape) * bits:
        raise _damaged(source, f"tensor {name[:80]!r} is not where its header says")
    return TensorEntry(dtype=dtype, shape=tuple(shape), begin=begin, end=end)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)


def _damaged(source: str, what: str) -> CheckpointError:
    return CheckpointError(f"{source} is damaged ({what}); download the checkpoint again")
