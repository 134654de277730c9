"""Checkpoints that are GGUF files, against `transformers` on the same file."""

import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_checkpoints import COMPACT, Family, generate, save
from gguf import GGUFWriter
from gguf_files import QuantType, add_value, tokenizer_metadata, write_gguf
from safetensors.numpy import load_file, save_file
from stage_cluster import GREEDY, StageCluster
from transformers import AutoModelForCausalLM, AutoTokenizer

from runtime.checkpoints.model_facts import read_sizes
from runtime.coordinator.tokenizer import load_tokenizer
from runtime.engine.grammar import Grammars
from runtime.models.checkpoint import CheckpointError, Piece, TensorFiles
from runtime.models.config import CompactConfig, read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.tiny_training import DIALOGUES
from runtime.models.weights import load_decoder
from runtime.protocol.openai_parameters import ChatMessage

CPU = torch.device("cpu")
LAYERS = 3
VOCABULARY = 300
WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": LAYERS}
PROMPTS = [[5, 77, 140, 3, 9], [211, 12, 299, 45, 45, 45, 8, 101, 60]]
QUANTIZED = [
    QuantType.Q4_0, QuantType.Q4_1, QuantType.Q4_K, QuantType.Q5_K, QuantType.Q6_K,
    QuantType.Q8_0, QuantType.F16, QuantType.BF16,
]  # fmt: skip
CHAT = [ChatMessage(role="user", content="What is HelixWeb, and who's asking?")]


def in_float32(path: Path) -> Path:
    """The folder of the only GGUF file in it, which it turns to float32 as a user would."""
    (path.parent / "config.json").write_text('{"dtype": "float32"}')
    return path.parent


def make(tmp_path: Path, family: Family, quantized: QuantType, **metadata: Any) -> Path:
    """A folder with one GGUF file."""
    save(family, tmp_path / "whole", seed=1)
    folder = tmp_path / "gguf"
    folder.mkdir()
    return write_gguf(
        folder / "model.gguf", tmp_path / "whole", quantized=quantized, metadata=metadata
    )


def answers(checkpoint: Path, layers: int = LAYERS, *, max_tokens: int = 8) -> list[list[int]]:
    """Greedy, by two stages."""
    cluster = StageCluster(checkpoint, {"a": (0, 2), "b": (1, layers)}, max_context_tokens=64)
    for request, prompt in enumerate(PROMPTS):
        cluster.prompt(
            request,
            prompt,
            (("a", 0, 2), ("b", 2, layers)),
            sampling=replace(GREEDY, max_tokens=max_tokens),
        )
    cluster.run_all()
    return [cluster.answers[request, 1].token_ids for request in range(len(PROMPTS))]


def of_transformers(path: Path) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    model.generation_config.eos_token_id = None
    return model.eval()


@pytest.mark.parametrize("quantized", QUANTIZED, ids=lambda type_: type_.name)
def test_a_quantized_file_gives_the_tokens_of_transformers(
    quantized: QuantType, tmp_path: Path
) -> None:
    path = make(tmp_path, Family(model_type="llama", changes=WIDE), quantized)
    oracle = of_transformers(path)
    found = answers(in_float32(path))
    assert found == [generate(oracle, prompt, max_tokens=8) for prompt in PROMPTS]


@pytest.mark.parametrize(
    "family",
    [
        Family(model_type="mistral", changes={"sliding_window": None, "head_dim": 16}),
        Family(model_type="qwen2", changes={}),
        # transformers takes the size of a head for 128 in any such file
        Family(model_type="qwen3", changes={"head_dim": 128, "tie_word_embeddings": True}),
    ],
    ids=lambda family: family.model_type,
)
def test_other_families_give_the_tokens_of_transformers(family: Family, tmp_path: Path) -> None:
    family = replace(family, changes=WIDE | family.changes)
    path = make(tmp_path, family, QuantType.Q8_0)
    oracle = of_transformers(path)
    found = answers(in_float32(path))
    assert found == [generate(oracle, prompt, max_tokens=8) for prompt in PROMPTS]


@pytest.mark.parametrize("name", ["llama 3", "llama linear rope", "llama yarn"])
def test_stretched_positions_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    """llama.cpp writes Llama 3's stretch as a tensor of divisors, the others as metadata."""
    save(COMPACT[name], tmp_path / "whole", seed=1)
    rope = COMPACT[name].changes["rope_parameters"]
    metadata = {}
    if name != "llama 3":
        metadata = {
            "llama.rope.scaling.type": rope["rope_type"],
            "llama.rope.scaling.factor": rope["factor"],
            "llama.rope.scaling.original_context_length": 32,
        }
    path = tmp_path / "model.gguf"
    if name == "llama 3":
        config = read_config(tmp_path / "whole")
        assert isinstance(config, CompactConfig)
        decoder = load_whole(tmp_path / "whole")
        plain = rope["rope_theta"] ** -(np.arange(0, config.head_size, 2) / config.head_size)
        divisors = (plain / decoder.frequencies_F.numpy()).astype(np.float32)
        tensors = load_file_of(tmp_path / "whole")
        save_file(
            tensors | {"rope_freqs.weight": divisors}, tmp_path / "whole" / "model.safetensors"
        )
    write_gguf(path, tmp_path / "whole", metadata=metadata)
    ids_T = torch.tensor(PROMPTS[1])
    ours, theirs = load_whole(path), load_whole(tmp_path / "whole")
    for cos_or_sin, expected in zip(
        ours.rotation(ids_T).angles[""], theirs.rotation(ids_T).angles[""], strict=True
    ):
        torch.testing.assert_close(cos_or_sin, expected, atol=1e-4, rtol=0)


def load_file_of(folder: Path) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
        file.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    return tensors


def load_whole(checkpoint: Path) -> Any:
    config = read_config(checkpoint)
    return load_decoder(
        checkpoint,
        config,
        first=0,
        end=config.num_layers,
        device=CPU,
        progress=lambda _done, _total: None,
    )


def test_any_part_of_a_tensor_is_the_part_of_the_original(tmp_path: Path) -> None:
    """As ranks read them: some rows, some columns; query and key are reordered in the file."""
    save(COMPACT["llama 2"], tmp_path / "whole", seed=1)
    path = write_gguf(tmp_path / "model.gguf", tmp_path / "whole")
    ours, theirs = TensorFiles.of(path), TensorFiles.of(tmp_path / "whole")
    assert set(ours.holders) == set(theirs.holders)
    dice = np.random.default_rng(3)
    for name, shape in theirs.shapes(list(theirs.holders)).items():
        start, stop = sorted(dice.choice(shape[0] + 1, 2, replace=False).tolist())
        columns = None
        if len(shape) == 2:
            columns = tuple(sorted(dice.choice(shape[1] + 1, 2, replace=False).tolist()))
        piece = Piece(name=name, shape=shape, rows=(start, stop), columns=columns)
        found, expected = (
            files.stack([piece, piece], dtype=torch.float32, device=CPU) for files in (ours, theirs)
        )
        assert torch.equal(found, expected), name


def test_quantized_weights_are_computed_in_bfloat16_and_others_as_stored(tmp_path: Path) -> None:
    save(Family(model_type="llama", changes=WIDE), tmp_path / "whole", seed=1)
    for type_, dtype in (
        (QuantType.Q4_0, torch.bfloat16),
        (QuantType.BF16, torch.bfloat16),
        (QuantType.F16, torch.float16),
        (QuantType.F32, torch.float32),
    ):
        path = write_gguf(tmp_path / f"{type_.name}.gguf", tmp_path / "whole", quantized=type_)
        config = read_config(path)
        assert config.dtype == dtype
        whole = load_whole(path)
        held = sum(layer.nbytes for layer in whole.layers.values())
        tables = (whole.embedding_VD, whole.final_norm_D, whole.head_VD)
        assert held + sum(table.nbytes for table in tables) == config.weights_bytes(0, LAYERS)


def test_reading_takes_little_memory_beside_the_weights(tmp_path: Path) -> None:
    """numpy's arrays are counted, torch's, which hold the result, are not."""
    changes = WIDE | {"vocab_size": 20_000, "num_hidden_layers": 1}
    path = make(tmp_path, Family(model_type="llama", changes=changes), QuantType.Q4_1)
    name = "model.embed_tokens.weight"
    files = TensorFiles.of(path)
    files.read({"model.norm.weight": (256,)}, dtype=torch.bfloat16, device=CPU)
    tracemalloc.start()
    try:
        files.read({name: (20_000, 256)}, dtype=torch.bfloat16, device=CPU)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000  # whole, in float32, the tensor has 20,480,000 bytes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in Hugging Face layout with a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("trained")
    sizes = TinySizes(num_layers=2, hidden_size=32, intermediate_size=64, vocab_size=400)
    make_tiny_checkpoint(folder, sizes=sizes, seed=1, dialogues=DIALOGUES)
    return folder


TEXTS = [
    "What is HelixWeb? It's a site; they'll see.",
    "  two  spaces\n\n\tand a tab, 7 of 1 ",
    "Grüße, 你好 👋",
    "<|user|>not special?<|end|>",
]


@pytest.mark.parametrize("split", ["default", "qwen2", "llama-bpe", "tekken"])
def test_texts_become_the_tokens_of_transformers(split: str, trained: Path, tmp_path: Path) -> None:
    metadata = tokenizer_metadata(trained) | {"tokenizer.ggml.pre": split}
    path = write_gguf(tmp_path / "model.gguf", trained, metadata=metadata)
    theirs: Any = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    assert_alike(load_tokenizer(path), theirs)


def assert_alike(ours: Any, theirs: Any) -> None:
    for text in TEXTS:
        ids = ours.encode_text(text)
        assert ids == theirs(text)["input_ids"], text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


def test_a_chat_is_that_of_the_original(trained: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", trained, metadata=tokenizer_metadata(trained))
    ours, original = load_tokenizer(path), load_tokenizer(trained)
    assert ours.encode_chat(CHAT) == original.encode_chat(CHAT)
    assert ours.stop_token_ids == original.stop_token_ids
    assert ours.vocabulary_size == original.vocabulary_size
    depths = [read_sizes(each) for each in (path, trained)]
    assert depths[0].num_layers == depths[1].num_layers
    assert depths[0].max_position_embeddings == depths[1].max_position_embeddings


def test_digits_are_tokens_of_their_own_where_the_model_was_taught_so(
    trained: Path, tmp_path: Path
) -> None:
    metadata = tokenizer_metadata(trained)
    metadata["tokenizer.ggml.tokens"].append("20")
    metadata["tokenizer.ggml.token_type"].append(1)
    metadata["tokenizer.ggml.merges"].append("2 0")
    found = {}
    for split in ("default", "smollm"):
        path = write_gguf(
            tmp_path / f"{split}.gguf", trained, metadata=metadata | {"tokenizer.ggml.pre": split}
        )
        tokenizer = load_tokenizer(path)
        found[split] = [tokenizer.token_text(each) for each in tokenizer.encode_text("in 20")]
    assert found["default"][-1] == "20"
    assert found["smollm"][-2:] == ["2", "0"]


def sentencepiece_metadata() -> dict[str, Any]:
    words = ["▁", "▁W", "▁Wh", "▁What", "▁is", "▁i", "▁the", "▁t", "th", "the", "re", "at", "is"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list("WHI'.,;?")
    pieces = [*words, *letters]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(n) for n in range(len(pieces))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def test_sentencepiece_texts_become_the_tokens_of_transformers(
    trained: Path, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "model.gguf", trained, metadata=sentencepiece_metadata())
    theirs: Any = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    assert_alike(load_tokenizer(path), theirs)


def test_an_answer_follows_a_schema(trained: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", trained, metadata=tokenizer_metadata(trained))
    grammar = Grammars(path, vocab_size=400).begin('{"enum": ["yes"]}').result()
    tokenizer = load_tokenizer(path)
    for token_id in tokenizer.encode_text('"yes"'):
        assert np.unpackbits(grammar.allowed(), bitorder="little")[token_id]
        grammar.accept(token_id)
    assert grammar.is_complete


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split.count": 3}, r"one of 3 parts.*llama-gguf-split --merge"),
        ({"llama.expert_count": 8}, r"llama\.expert_count is 8.*safetensors"),
        ({"llama.rope.scaling.type": "longrope"}, r"rope\.scaling\.type is 'longrope'"),
        ({"general.alignment": 48}, r"general\.alignment is 48, not a power of two"),
    ],
)
def test_what_cannot_be_run_is_refused_with_value_and_remedy(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    save(COMPACT["llama 2"], tmp_path / "whole", seed=1)
    path = write_gguf(tmp_path / "model.gguf", tmp_path / "whole", metadata=changes)
    with pytest.raises(CheckpointError, match=words) as raised:
        read_config(path)
    assert str(path) in str(raised.value)


def test_an_architecture_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"architecture is 'mamba'.*llama, mistral, qwen2"):
        read_config(path)


def test_a_folder_with_two_files_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"holds 2 GGUF files; give the path of one.*a\.gguf"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.ggml.model": "bert"}, "model is 'bert'; gpt2 and llama are supported"),
        ({"tokenizer.ggml.pre": "none-such"}, "pre is 'none-such'; supported are default, gpt-2"),
        ({"tokenizer.ggml.eos_token_id": 999}, "eos_token_id is 999, the vocabulary has 400"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "merges has 'a b c'"),
        ({"tokenizer.ggml.merges": ["a none-such"]}, "merges has 'a none-such'"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "not a list as a vocabulary needs it"),
    ],
)
def test_a_tokenizer_that_cannot_be_made_is_refused(
    change: dict[str, Any], words: str, trained: Path, tmp_path: Path
) -> None:
    metadata = tokenizer_metadata(trained) | change
    path = write_gguf(tmp_path / "model.gguf", trained, metadata=metadata)
    with pytest.raises(CheckpointError, match=words):
        load_tokenizer(path)


def test_a_file_cut_short_or_changed_anywhere_is_refused_or_read(
    trained: Path, tmp_path: Path
) -> None:
    """Never with another error."""
    path = write_gguf(tmp_path / "model.gguf", trained, metadata=tokenizer_metadata(trained))
    whole = path.read_bytes()
    size = whole.index(b"output_norm.weight")
    dice = np.random.default_rng(5)
    for round_ in range(300):
        content = bytearray(whole)
        if round_ % 3 == 0:
            content = content[: dice.integers(size)]
        else:
            for at in dice.integers(0, size, 3 if round_ % 3 == 1 else 1):
                content[at] = dice.integers(256)
        path.write_bytes(content)
        for use in (read_config, load_tokenizer, TensorFiles.of):
            with suppress(CheckpointError):
                use(path)


def test_a_tensor_of_a_layer_that_the_model_does_not_have_is_named(tmp_path: Path) -> None:
    family = Family(model_type="qwen2", changes={})
    save(family, tmp_path / "whole", seed=1)
    path = write_gguf(
        tmp_path / "model.gguf", tmp_path / "whole", metadata={"qwen2.block_count": 6}
    )
    data = path.read_bytes().replace(b"qwen2", b"qwen3")
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"q_proj\.bias.*model\.gguf|q_norm.*is missing"):
        load_whole(path)


def test_settings_beside_the_file_go_before_it(trained: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", trained, metadata=tokenizer_metadata(trained))
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    (tmp_path / "chat_template.jinja").write_text("short")
    config = read_config(tmp_path)
    assert (config.max_position_embeddings, config.num_layers) == (64, 2)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode_chat(CHAT)) == "short"


def test_metadata_writes_as_it_is_read(tmp_path: Path) -> None:
    from runtime.checkpoints.gguf_header import read_header

    told = {"a": True, "b": 7, "c": 0.5, "d": "ü", "e": ["x", ""], "f": [1, 2], "g": [0.25]}
    path = tmp_path / "x.gguf"
    writer = GGUFWriter(path, "llama")
    for key, value in told.items():
        add_value(writer, key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found = read_header(path)
    assert {key: found.get(key) for key in told} == told
    assert found.get("none") is None
