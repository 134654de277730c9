"""Headers of GGUF files that contradict themselves or the size of the file are refused."""

import struct
from pathlib import Path

import pytest

from runtime.coordinator.tokenizer import load_tokenizer
from runtime.models.checkpoint import CheckpointError, TensorFiles
from runtime.models.config import read_config


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*, tensors: int = 0, values: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values) + rest


def tensor(*shape: int, type_number: int = 0, offset: int = 0) -> bytes:
    numbers = struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
    return text("output_norm.weight") + numbers + struct.pack("<IQ", type_number, offset)


LLAMA = text("general.architecture") + struct.pack("<I", 8) + text("llama")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"GGML" + bytes(100), "is not a GGUF file"),
        (header(version=9), "version is 9"),
        (header(version=3 << 24), "little-endian"),
        (header(tensors=2**63), "tensor count says 9223372036854775808 elements"),
        (header(values=10**6), "metadata count says 1000000 elements"),
        (header(values=1, rest=struct.pack("<Q", 2**62) + bytes(99)), "is 4611686018427387904"),
        (header(values=1, rest=text("k") + struct.pack("<I", 77) + bytes(9)), "unknown type 77"),
        (
            header(values=1, rest=text("k") + struct.pack("<IIQ", 9, 4, 2**60) + bytes(9)),
            "k says 1152921504606846976 elements",
        ),
        (
            header(values=1, rest=text("k") + struct.pack("<IIQ", 9, 8, 2**60) + bytes(9)),
            "k says 1152921504606846976 elements",
        ),
        (
            header(values=1, rest=text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(30)),
            "an array again",
        ),
        (header(values=2, rest=LLAMA + LLAMA), "occurs twice"),
        (header(values=1, rest=text("k") + struct.pack("<IQ", 8, 2) + b"\xff\xff"), "not UTF-8"),
        (header(values=1, tensors=1, rest=LLAMA + tensor(2**40)), "which no such file holds"),
        (header(values=1, tensors=1, rest=LLAMA + tensor(0, 4)), "which no such file holds"),
        (header(values=1, tensors=1, rest=LLAMA + tensor(1, 1, 1, 1, 1)), "has 5 dimensions"),
        (header(values=1, tensors=1, rest=LLAMA + tensor(4, offset=2**50)), "beyond the"),
        (header(values=1, tensors=1, rest=LLAMA + tensor(4, offset=1) + bytes(99)), "unaligned"),
        (header(values=1, tensors=2, rest=LLAMA + 2 * tensor(4) + bytes(99)), "occurs twice"),
    ],
)
def test_a_header_that_lies_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as raised:
        read_config(path)
    assert str(path) in str(raised.value)
    with pytest.raises(CheckpointError, match=words):
        load_tokenizer(path)


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (tensor(256, type_number=15), r"ggml type 15, which cannot be decoded.*choose a file in"),
        (tensor(256, type_number=999), "ggml type 999, which cannot be decoded"),
        (tensor(31, type_number=2), "rows of 31 values, not whole blocks of 32 as Q4_0"),
        (tensor(4096), "ends at byte .*it is cut short"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_named(piece: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(values=1, tensors=1, rest=LLAMA + piece + bytes(512)))
    with pytest.raises(CheckpointError, match=f"'output_norm.weight' .*{words}"):
        TensorFiles.of(path)
