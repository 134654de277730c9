"""What a checkpoint says of its model equals what a stage would hold of it."""

import json
import struct
from pathlib import Path

import pytest

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.model_facts import read_facts
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.checkpoint_looks import ModelFacts
from tests.runtime.family_checkpoints import FAMILIES, save
from tests.runtime.gguf_files import write_gguf


def assert_as_loaded(facts: ModelFacts, checkpoint: Path) -> None:
    """The same bytes as the code that loads the model counts."""
    config = read_config(checkpoint)
    layers = config.num_layers
    middle = range(1, layers - 1)
    ends = config.weights_bytes(0, layers) - sum(config.layer_bytes)
    assert facts.num_layers == layers
    assert facts.bytes_per_layer == max(config.weights_bytes(at, at + 1) for at in middle)
    assert facts.embedding_bytes + facts.head_bytes == ends
    assert facts.activation_bytes_per_token == config.hidden_size * config.dtype.itemsize
    assert f"torch.{facts.dtype.removeprefix('gguf-')}" == str(config.dtype)
    assert (facts.num_heads, facts.num_kv_heads) == (config.num_heads, config.num_kv_heads)
    assert facts.head_dim == config.head_size
    assert facts.max_context_tokens == config.max_position_embeddings


@pytest.mark.parametrize("name", FAMILIES)
def test_facts_of_a_folder_are_what_a_stage_would_hold(name: str, tmp_path: Path) -> None:
    save(FAMILIES[name], tmp_path / "small model", seed=1)
    facts = read_facts(tmp_path / "small model")
    assert_as_loaded(facts, tmp_path / "small model")
    assert facts.architecture == FAMILIES[name].model_type
    assert (facts.name, facts.checkpoint) == ("small-model", str(tmp_path / "small model"))


def test_facts_of_a_gguf_file_are_what_a_stage_would_hold(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path / "folder", sizes=TinySizes(num_layers=3), seed=1)
    file = write_gguf(tmp_path / "small.gguf", tmp_path / "folder")
    facts = read_facts(file)
    assert_as_loaded(facts, file)
    assert (facts.name, facts.checkpoint) == ("small", str(file))
    assert facts.dtype == "gguf-float32"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({}, "does not exist"),
        ({"config.json": b"{}"}, "holds neither model.safetensors nor"),
        ({"config.json": b"no json", "model.safetensors": b""}, "is not JSON"),
        ({"config.json": b"{}", "model.safetensors": b"short"}, "is damaged"),
        (
            {"config.json": b"{}", "model.safetensors": struct.pack("<Q", 2) + b"{}"},
            "model_type is",
        ),
        (
            {
                "config.json": json.dumps(
                    {
                        "model_type": "gpt2",
                        "n_layer": 2,
                        "n_embd": 8,
                        "n_head": 2,
                        "n_positions": 64,
                        "vocab_size": 300,
                    }
                ).encode(),
                "model.safetensors": struct.pack("<Q", 2) + b"{}",
            },
            "the weights hold other layers",
        ),
        ({"model.gguf": b"not one"}, "model.gguf"),
        (
            {
                "config.json": b"{}",
                "model.safetensors.index.json": json.dumps(
                    {"weight_map": {name: f"{name}.safetensors" for name in ("a", "b", "c")}}
                ).encode(),
                "a.safetensors": b"",
            },
            "index.json names b.safetensors and 1 more, which .* lacks; download",
        ),
    ],
)
def test_a_wrong_folder_is_refused_by_name(
    written: dict[str, bytes], told: str, tmp_path: Path
) -> None:
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=told) as refused:
        read_facts(tmp_path)
    assert str(tmp_path) in str(refused.value)
