import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from family_checkpoints import COMPACT, save
from safetensors.torch import load_file, save_file

from runtime.models.checkpoint import CheckpointError
from runtime.models.compact_decoder import CompactDecoder, tensor_shapes
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder

SIZES = TinySizes(
    num_layers=4,
    hidden_size=16,
    intermediate_size=24,
    vocab_size=270,
    max_position_embeddings=64,
)
CPU = torch.device("cpu")


def make(directory: Path, sizes: TinySizes = SIZES) -> Path:
    make_tiny_checkpoint(directory, sizes=sizes, seed=1)
    return directory


def load(checkpoint: Path, first: int, end: int) -> CompactDecoder:
    return load_decoder(
        checkpoint,
        read_config(checkpoint),
        first=first,
        end=end,
        device=CPU,
        progress=lambda _done, _total: None,
    )


def add_tensors(checkpoint: Path, path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Into a file of their own that the index names."""
    save_file(tensors, path)
    index_path = checkpoint / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    index["weight_map"] |= dict.fromkeys(tensors, path.name)
    index_path.write_text(json.dumps(index))


def decoder_bytes(decoder: CompactDecoder) -> int:
    tables = {
        each.data_ptr(): each
        for each in (decoder.embedding_VD, decoder.head_VD)
        if each is not None
    }
    tensors = [decoder.final_norm_D, *tables.values()]
    for layer in decoder.layers.values():
        tensors += layer.tensors().values()
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("first", "end"), [(0, 2), (1, 3), (2, 4), (0, 4)])
def test_a_stage_holds_the_bytes_it_announces_and_no_more(
    tmp_path: Path, tied: bool, shards: int, first: int, end: int
) -> None:
    make(tmp_path, replace(SIZES, tie_word_embeddings=tied, shards=shards))
    decoder = load(tmp_path, first, end)
    assert decoder_bytes(decoder) == decoder.config.weights_bytes(first, end)


def test_only_the_files_of_the_assigned_layers_are_opened(tmp_path: Path) -> None:
    make(tmp_path, replace(SIZES, shards=40))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    wanted = {index[name] for name in tensor_shapes(read_config(tmp_path), 1, 2)}
    for file in tmp_path.glob("model-*.safetensors"):
        if file.name not in wanted:
            file.unlink()
    assert load(tmp_path, 1, 2).layers[1].down_DI.shape == (16, 24)


def test_weights_do_not_stay_tied_to_the_file(tmp_path: Path) -> None:
    make(tmp_path)
    decoder = load(tmp_path, 0, 4)
    before = decoder.layers[0].output_DE.clone()
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(-4000, 2)
        file.write(bytes(4000))
    assert torch.equal(decoder.layers[0].output_DE, before)


def test_progress_rises_to_the_total(tmp_path: Path) -> None:
    make(tmp_path)
    seen: list[tuple[int, int]] = []
    config = read_config(tmp_path)
    load_decoder(
        tmp_path,
        config,
        first=0,
        end=4,
        device=CPU,
        progress=lambda done, total: seen.append((done, total)),
    )
    total = config.weights_bytes(0, 4)
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_missing_tensor_is_named_with_its_file_and_the_remedy(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, path)
    assert load(tmp_path, 0, 2)  # not its business
    with pytest.raises(CheckpointError) as raised:
        load(tmp_path, 1, 3)
    assert "'model.layers.2.mlp.up_proj.weight' is missing" in str(raised.value)
    assert str(path) in str(raised.value)
    assert "download the checkpoint again" in str(raised.value)


def test_a_tensor_missing_in_the_shard_that_should_hold_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, replace(SIZES, shards=2))
    name = "model.layers.1.self_attn.k_proj.weight"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    path = tmp_path / index[name]
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"'{name}' is missing in {path}"):
        load(tmp_path, 1, 2)


@pytest.mark.parametrize("name", COMPACT)
def test_a_tensor_of_a_layer_that_the_model_does_not_have_is_named(
    name: str, tmp_path: Path
) -> None:
    save(COMPACT[name], tmp_path, seed=0)
    extra = tmp_path / "extra.safetensors"
    add_tensors(tmp_path, extra, {"model.layers.1.mlp.gate_proj.scale": torch.zeros(48)})
    assert load(tmp_path, 2, 4)  # not its business
    with pytest.raises(CheckpointError) as raised:
        load(tmp_path, 0, 2)
    assert f"'model.layers.1.mlp.gate_proj.scale' of shape (48,) in {extra}" in str(raised.value)
    assert "config.json and weights are of different models" in str(raised.value)


def test_rotary_frequencies_of_old_checkpoints_are_passed_over(tmp_path: Path) -> None:
    save(COMPACT["llama 2"], tmp_path, seed=0)
    name = "model.layers.1.self_attn.rotary_emb.inv_freq"
    add_tensors(tmp_path, tmp_path / "extra.safetensors", {name: torch.zeros(4)})
    assert load(tmp_path, 0, 2)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    make(tmp_path, replace(SIZES, shards=2))
    path = tmp_path / "model-00002-of-00002.safetensors"
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path} does not exist"):
        load(tmp_path, 0, 4)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = torch.ones(17)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"'model.norm.weight'.*\(17,\).*\(16,\)"):
        load(tmp_path, 2, 4)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged"):
        load(tmp_path, 0, 4)


def test_a_directory_without_weights_says_which_files_are_wanted(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        load(tmp_path, 0, 4)


def test_layers_outside_the_model_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(CheckpointError, match=r"layers \[2, 5\) are not in .*, which has 4"):
        load(tmp_path, 2, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "megahorn"}, "model_type 'megahorn' cannot be run: transformers"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "it is an encoder-decoder"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_type is 'spiral'"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope scaling lacks 'factor'"),
        ({"quantization_config": {"bits": 4}}, "names no quant_method"),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4}},
            "asks for awq-4bit weights",
        ),
        ({"num_hidden_layers": None}, "num_hidden_layers is None"),
        ({"hidden_size": "large"}, "hidden_size is 'large'"),
        ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads 3"),
        ({"dtype": "float8"}, "dtype is 'float8'"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_with_the_value(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    make(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError) as raised:
        read_config(tmp_path)
    assert message in str(raised.value)


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist; give the folder"):
        read_config(tmp_path)


def test_old_config_keys_mean_the_same(tmp_path: Path) -> None:
    make(tmp_path, replace(SIZES, llama3_rope_factor=8.0))
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    new = read_config(tmp_path)
    rope = raw.pop("rope_parameters")
    raw |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    raw["torch_dtype"] = raw.pop("dtype")
    path.write_text(json.dumps(raw))
    assert read_config(tmp_path) == new
