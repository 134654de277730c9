"""What the bridge refuses, and how it says so."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from family_checkpoints import BRIDGED, FAMILIES, Family, save
from safetensors.torch import load_file, save_file

from runtime.models.bridge_config import UnsupportedModel
from runtime.models.checkpoint import CheckpointError
from runtime.models.config import read_config
from runtime.models.decoder import Decoder
from runtime.models.hf_bridge import BridgedDecoder
from runtime.models.weights import load_decoder


def load(checkpoint: Path, first: int, end: int) -> Decoder:
    return load_decoder(
        checkpoint,
        read_config(checkpoint),
        first=first,
        end=end,
        device=torch.device("cpu"),
        progress=lambda _done, _total: None,
    )


def change_config(checkpoint: Path, change: dict[str, Any]) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def holder_of(checkpoint: Path, name: str) -> Path:
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    return checkpoint / str(index["weight_map"][name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "t5", "is_encoder_decoder": True}, "it is an encoder-decoder"),
        ({"model_type": "llava", "vision_config": {"hidden_size": 8}}, "pictures or sound"),
        ({"model_type": "bert"}, "cannot be run"),
        ({"model_type": "megahorn"}, "has no causal language model of it"),
        ({"model_type": "megahorn", "auto_map": {"AutoModel": "x.y"}}, "no foreign code is run"),
        ({"model_type": "mamba"}, "linear_attention"),
        ({"model_type": "bloom"}, "take no attention function from outside"),
        ({"layer_types": ["chunked_attention"] * 6}, "keep something else than keys and values"),
        ({"quantization_config": {"quant_method": "awq"}}, "asks for awq weights"),
    ],
)
def test_an_architecture_that_cannot_be_run_is_named_with_what_is_in_the_way(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save(BRIDGED["phi3"], tmp_path, seed=0)
    change_config(tmp_path, change)
    with pytest.raises(CheckpointError, match=message) as raised:
        read_config(tmp_path)
    assert str(tmp_path / "config.json") in str(raised.value)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (
            Family(model_type="gpt_oss", changes={"head_dim": 8, "num_local_experts": 2}),
            "sinks of its own",
        ),
        (
            Family(model_type="gpt2", changes={"num_key_value_heads": 4}),
            "adds positions to its token embeddings",
        ),
    ],
    ids=["attention sinks", "learned positions"],
)
def test_a_family_that_attends_or_embeds_otherwise_is_refused_when_it_is_loaded(
    family: Family, message: str, tmp_path: Path
) -> None:
    save(family, tmp_path, seed=0)
    with pytest.raises(UnsupportedModel, match=message):
        load(tmp_path, 0, 2)


def test_layers_that_give_other_rows_than_their_own_model_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(BRIDGED["phi3"], tmp_path, seed=0)
    run_layer = BridgedDecoder.run_layer
    monkeypatch.setattr(
        BridgedDecoder,
        "run_layer",
        lambda self, layer, hidden, **named: 1.01 * run_layer(self, layer, hidden, **named),
    )
    with pytest.raises(UnsupportedModel, match=r"layers \[2, 4\) give rows that differ by"):
        load(tmp_path, 2, 4)


def test_without_transformers_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(BRIDGED["phi3"], tmp_path, seed=0)
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(CheckpointError, match=r"'phi3'.*pip install 'helixweb\[bridge\]'"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("phi3", "model.layers.3.self_attn.qkv_proj.weight"),
        ("qwen3 moe", "model.layers.3.mlp.experts.1.up_proj.weight"),
        ("gemma2", "model.layers.3.pre_feedforward_layernorm.weight"),
    ],
)
def test_a_missing_tensor_of_a_bridged_layer_is_named(
    name: str, tensor: str, tmp_path: Path
) -> None:
    save(FAMILIES[name], tmp_path, seed=0)
    path = holder_of(tmp_path, tensor)
    index_path = tmp_path / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    del index["weight_map"][tensor]
    index_path.write_text(json.dumps(index))
    tensors = load_file(path)
    del tensors[tensor]
    save_file(tensors, path, metadata={"format": "pt"})
    assert load(tmp_path, 0, 3)  # not its business
    with pytest.raises(CheckpointError, match=r"model\.layers\.3\."):
        load(tmp_path, 2, 4)


def test_a_bridged_tensor_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    save(BRIDGED["phi3"], tmp_path, seed=0)
    tensor = "model.layers.1.mlp.down_proj.weight"
    path = holder_of(tmp_path, tensor)
    save_file(load_file(path) | {tensor: torch.zeros(32, 40)}, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"'{tensor}'.*\(32, 40\).*\(32, 48\)"):
        load(tmp_path, 0, 2)


@pytest.mark.parametrize("name", ["phi3", "llama 2"])
def test_a_tensor_that_the_model_does_not_have_is_named(name: str, tmp_path: Path) -> None:
    save(FAMILIES[name], tmp_path, seed=0)
    tensor = "model.layers.1.self_attn.surprise.weight"
    index_path = tmp_path / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    index["weight_map"][tensor] = "extra.safetensors"
    index_path.write_text(json.dumps(index))
    save_file({tensor: torch.zeros(3)}, tmp_path / "extra.safetensors")
    assert load(tmp_path, 2, 4)  # not its business
    with pytest.raises(CheckpointError, match=f"'{tensor}'.*is none that config.json asks for"):
        load(tmp_path, 0, 2)


def test_longrope_is_run_within_its_original_context_only(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 64,
    }
    changes = {"rope_parameters": rope, "original_max_position_embeddings": 64}
    save(Family(model_type="phi3", changes=changes), tmp_path, seed=0)
    assert read_config(tmp_path).max_position_embeddings == 64


def test_a_bridged_stage_in_the_middle_has_neither_embedding_nor_head(tmp_path: Path) -> None:
    save(BRIDGED["gemma3"], tmp_path, seed=0)
    decoder = load(tmp_path, 2, 4)
    assert (decoder.first, decoder.end) == (2, 4)
    with pytest.raises(ValueError, match="no embedding"):
        decoder.embed(torch.tensor([1]))
    with pytest.raises(ValueError, match="no head"):
        decoder.logits(torch.zeros(1, 32))
