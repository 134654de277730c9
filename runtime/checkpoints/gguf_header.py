"""The header of a GGUF file: its metadata, and where each tensor lies.

Checks every count and offset against the size of the file before using it. Keeps arrays where
they are: a vocabulary is decoded when it is asked for.
"""

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Never

from runtime.checkpoints.errors import CheckpointError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 2**16
_SHOWN = 80  # characters of a value from the file in a message
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_FLOAT32_TENSOR = 0
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_LEAST_ENTRY_BYTES = 8 + 4 + 1  # name, type, value
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8  # name, dimensions, type, offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor: `shape` as torch has it (rows first), `type_number` as ggml counts its types,
    `offset` in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """An array that was not decoded; `start` is the offset of its first element."""

    type_number: int
    count: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a GGUF file says of itself; `file_bytes` is its size."""

    path: Path
    file_bytes: int
    tensors: Mapping[str, TensorInfo]
    _values: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """The value of a metadata key, None if there is none. An array is read from the file.

        Raises CheckpointError for a text that is not UTF-8.
        """
        value = self._values.get(key)
        if not isinstance(value, _Array):
            return value
        with _Reader.of(self.path) as reader:
            reader.at = value.start
            if value.type_number == _STRING:
                return [reader.text(key) for _ in range(value.count)]
            return list(reader.scalars(value.type_number, value.count, key))

    def floats(self, name: str) -> list[float]:
        """The values of a small float32 tensor. Raises CheckpointError for another type."""
        tensor = self.tensors[name]
        if tensor.type_number != _FLOAT32_TENSOR:
            raise CheckpointError(
                f"{self.path}: tensor {name!r} is of the ggml type {tensor.type_number}, not "
                "float32; choose another checkpoint"
            )
        with _Reader.of(self.path) as reader:
            reader.at = tensor.offset
            return list(reader.scalars(_FLOAT32, prod(tensor.shape), name))

    def length(self, key: str) -> int | None:
        """Elements of an array, without reading it; None if there is no such array."""
        value = self._values.get(key)
        return value.count if isinstance(value, _Array) else None


def read_header(path: Path) -> GgufHeader:
    """Raises CheckpointError for a file that is missing, damaged, cut short or of another kind."""
    with _Reader.of(path) as reader:
        if reader.take(4, "magic") != _MAGIC:
            raise CheckpointError(f"{path} is not a GGUF file; give a file that begins with GGUF")
        version = reader.number("<I", "version")
        if version not in _VERSIONS:
            raise CheckpointError(
                f"{path}: GGUF version is {version}, known are 2 and 3 in little-endian order; "
                "convert the model again with a current llama.cpp"
            )
        n_tensors = reader.count("tensor count", least_bytes=_LEAST_TENSOR_BYTES)
        n_values = reader.count("metadata count", least_bytes=_LEAST_ENTRY_BYTES)
        values = {}
        for _ in range(n_values):
            key = reader.text("a metadata key", longest=_LONGEST_NAME)
            if key in values:
                reader.refuse(f"metadata key {key[:_SHOWN]!r} occurs twice")
            values[key] = _value(reader, key)
        infos = [_tensor(reader) for _ in range(n_tensors)]
        alignment = values.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            reader.refuse(f"general.alignment is {str(alignment)[:_SHOWN]}, not a power of two")
        data_start = -(-reader.at // alignment) * alignment
        tensors = {}
        for info in infos:
            if info.name in tensors:
                reader.refuse(f"tensor {info.name!r} occurs twice")
            if info.offset % alignment or data_start + info.offset > reader.file_bytes:
                reader.refuse(
                    f"tensor {info.name!r} begins at {data_start + info.offset}, which is "
                    f"unaligned or beyond the {reader.file_bytes} bytes of the file"
                )
            tensors[info.name] = replace(info, offset=data_start + info.offset)
        return GgufHeader(path=path, file_bytes=reader.file_bytes, tensors=tensors, _values=values)


def _value(reader: "_Reader", key: str) -> Any:
    type_number = reader.number("<I", f"the type of {key[:_SHOWN]!r}")
    if type_number == _STRING:
        return reader.text(key)
    if type_number in _SCALARS:
        return reader.number(_SCALARS[type_number], key)
    if type_number != _ARRAY:
        reader.refuse(f"metadata key {key[:_SHOWN]!r} has the unknown type {type_number}")
    element = reader.number("<I", key)
    if element == _STRING:
        count = reader.count(key, least_bytes=8)
        start = reader.at
        for _ in range(count):
            reader.skip_text(key)
    elif element in _SCALARS:
        size = struct.calcsize(_SCALARS[element])
        count = reader.count(key, least_bytes=size)
        start = reader.at
        reader.at += count * size
    else:
        reader.refuse(
            f"metadata key {key[:_SHOWN]!r} is an array of the type {element}, which is unknown "
            "or an array again"
        )
    return _Array(type_number=element, count=count, start=start)


def _tensor(reader: "_Reader") -> TensorInfo:
    """With its offset from the start of the data, which is not known yet."""
    name = reader.text("a tensor's name", longest=_LONGEST_NAME)
    n_dimensions = reader.number("<I", name)
    if not 1 <= n_dimensions <= _MOST_DIMENSIONS:
        reader.refuse(
            f"tensor {name[:_SHOWN]!r} has {n_dimensions} dimensions; 1 to {_MOST_DIMENSIONS} "
            "are possible"
        )
    shape = tuple(reader.number("<Q", name) for _ in range(n_dimensions))[::-1]
    # no type has more than 64 elements per byte
    if 0 in shape or prod(shape) > 64 * reader.file_bytes:
        reader.refuse(f"tensor {name[:_SHOWN]!r} has the shape {shape}, which no such file holds")
    type_number = reader.number("<I", name)
    offset = reader.number("<Q", name)
    return TensorInfo(name=name, shape=shape, type_number=type_number, offset=offset)


class _Reader:
    """A cursor over a mapped file. A context manager; everything it reads is checked."""

    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        self.path = path
        self.at = 0
        self.file_bytes = len(mapped)
        self._mapped = mapped

    @classmethod
    def of(cls, path: Path) -> "_Reader":
        """Raises CheckpointError when the file cannot be opened."""
        try:
            with path.open("rb") as file:
                return cls(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            raise CheckpointError(
                f"{path} does not exist; give the path of a GGUF file or of a folder"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise CheckpointError(
                f"{path} cannot be read: {error}; download the file again"
            ) from error

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._mapped.close()

    def refuse(self, what: str) -> Never:
        raise CheckpointError(f"{self.path} is damaged: {what}; download the file again")

    def take(self, size: int, what: str) -> bytes:
        end = self.at + size
        if end > self.file_bytes:
            self.refuse(
                f"{what[:_SHOWN]} ends at byte {end}, the file has {self.file_bytes}: cut short"
            )
        taken = self._mapped[self.at : end]
        self.at = end
        return taken

    def number(self, format_: str, what: str) -> Any:
        return struct.unpack(format_, self.take(struct.calcsize(format_), what))[0]

    def count(self, what: str, *, least_bytes: int) -> int:
        """Of things that take `least_bytes` each at least."""
        found = int(self.number("<Q", what))
        left = self.file_bytes - self.at
        if found * least_bytes > left:
            self.refuse(f"{what[:_SHOWN]} says {found} elements, {left} bytes are left")
        return found

    def text(self, what: str, *, longest: int | None = None) -> str:
        size = int(self.number("<Q", what))
        if longest is not None and size > longest:
            self.refuse(f"{what[:_SHOWN]} is {size} bytes long; {longest} are possible")
        try:
            return self.take(size, what).decode()
        except UnicodeDecodeError as error:
            self.refuse(f"{what[:_SHOWN]} is not UTF-8 ({error})")

    def skip_text(self, what: str) -> None:
        size = int(self.number("<Q", what))
        if size > self.file_bytes - self.at:
            self.refuse(f"a text of {what[:_SHOWN]} is {size} bytes long: more than is left")
        self.at += size

    def scalars(self, type_number: int, count: int, what: str) -> Iterator[Any]:
        code = _SCALARS[type_number]
        taken = self.take(count * struct.calcsize(code), what)
        return (value for (value,) in struct.iter_unpack(code, taken))
