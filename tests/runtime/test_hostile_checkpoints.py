"""Checkpoints of somebody who means harm: refused by name, and nothing of theirs runs."""

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.coordinator.tokenizer import TokenizerError, load_tokenizer
from runtime.models.checkpoint import CheckpointError, TensorFiles
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder
from runtime.protocol.openai_parameters import ChatMessage

SIZES = TinySizes(
    num_layers=2, hidden_size=16, intermediate_size=24, vocab_size=270, max_position_embeddings=64
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    make_tiny_checkpoint(folder, sizes=SIZES, seed=1)
    return folder


def load(checkpoint: Path) -> object:
    return load_decoder(
        checkpoint,
        read_config(checkpoint),
        first=0,
        end=2,
        device=torch.device("cpu"),
        progress=lambda _done, _total: None,
    )


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


class Touches:
    """What a pickle can be: a call."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


@pytest.mark.parametrize(
    "name",
    ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "x\0y", "..\\x", 7, None],
)
def test_an_index_reaches_no_file_outside_its_checkpoint(checkpoint: Path, name: object) -> None:
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    with pytest.raises(CheckpointError, match="beside its index"):
        TensorFiles.of(checkpoint)


def header(document: object, *, length: int | None = None, data: bytes = b"") -> bytes:
    """A safetensors file with that header, which says to be `length` long."""
    text = json.dumps(document).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        header({}, length=2**63),
        header({}, length=10**9),
        header({"model.norm.weight": tensor([16], 0, 10**15)}),
        header({"model.norm.weight": tensor([2**62, 2**62], 0, 64)}, data=bytes(64)),
        header({"model.norm.weight": tensor([-16], 0, 64)}, data=bytes(64)),
        header({"a": tensor([16], 0, 64), "b": tensor([16], 0, 64)}, data=bytes(64)),
        header([[[]]]),
    ],
    ids=["empty", "2**63", "a gigabyte", "far end", "overflow", "negative", "overlap", "a list"],
)
def test_a_header_that_lies_is_refused(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors|is missing"):
        load(checkpoint)


def test_pickled_weights_are_never_opened(checkpoint: Path, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    (checkpoint / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.pt", "consolidated.00.pth"):
        (checkpoint / name).write_bytes(pickle.dumps(Touches(proof)))
    with pytest.raises(CheckpointError, match="safetensors format"):
        load(checkpoint)
    (checkpoint / "model.safetensors").write_bytes(pickle.dumps(Touches(proof)))
    with pytest.raises(CheckpointError, match="is damaged"):
        load(checkpoint)
    assert not proof.exists()


def test_code_that_comes_with_a_checkpoint_does_not_run(checkpoint: Path, tmp_path: Path) -> None:
    """As Hugging Face has it with `trust_remote_code`."""
    proof = tmp_path / "it-ran"
    program = f"from pathlib import Path\nPath({str(proof)!r}).touch()\nclass Evil: ...\n"
    (checkpoint / "evil.py").write_text(program)
    change(
        checkpoint / "config.json",
        model_type="evil",
        architectures=["Evil"],
        auto_map={name: "evil.Evil" for name in ("AutoConfig", "AutoModelForCausalLM")},
    )
    with pytest.raises(CheckpointError):
        read_config(checkpoint)
    assert not proof.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ 1 // 0 }}",
        "{{ 10.0 ** 1000 }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{% for n in range(1000000000) %}x{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_chat_template_stays_in_its_sandbox(checkpoint: Path, template: str) -> None:
    (checkpoint / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(checkpoint)
    with pytest.raises(TokenizerError, match="chat template refuses"):
        tokenizer.encode_chat([ChatMessage(role="user", content="hi")])


@pytest.mark.parametrize(
    "template", ["{{ ''|attr('__class__')|attr('__mro__') }}", "{{ raise_exception.__globals__ }}"]
)
def test_what_a_chat_template_may_not_see_is_nothing_to_it(checkpoint: Path, template: str) -> None:
    (checkpoint / "chat_template.jinja").write_text(f"x{template}x")
    tokenizer = load_tokenizer(checkpoint)
    said = tokenizer.encode_chat([ChatMessage(role="user", content="hi")])
    assert tokenizer.decode(said) == "xx"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{" * 10_000, b'{"model": {"type": "BPE"}}', b"\xff\xfe", b"null"]
)
def test_a_tokenizer_file_that_is_none_is_refused(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match="is not a tokenizer"):
        load_tokenizer(checkpoint)
