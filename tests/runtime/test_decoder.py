"""One layer range against the same layers of `transformers`, and the tiny checkpoint itself."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from runtime.models import compact_decoder
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.config import read_config
from runtime.models.decoder import AttentionRule, Decoder
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.tiny_training import DIALOGUES, Trainer
from runtime.models.weights import load_decoder

SIZES = TinySizes(
    num_layers=5,
    hidden_size=32,
    intermediate_size=48,
    vocab_size=300,
    max_position_embeddings=256,
)


def load(checkpoint: Path, first: int, end: int) -> Decoder:
    return load_decoder(
        checkpoint,
        read_config(checkpoint),
        first=first,
        end=end,
        device=torch.device("cpu"),
        progress=lambda _done, _total: None,
    )


def causal(
    _layer: int, query_TNH: Tensor, key_TKH: Tensor, value_TKH: Tensor, rule: AttentionRule
) -> Tensor:
    attended_NTH = functional.scaled_dot_product_attention(
        query_TNH.transpose(0, 1)[None],
        key_TKH.transpose(0, 1)[None],
        value_TKH.transpose(0, 1)[None],
        is_causal=True,
        scale=rule.scale,
        enable_gqa=True,
    )[0]
    return attended_NTH.transpose(0, 1)


@pytest.mark.parametrize("factor", [1.0, 8.0], ids=["plain rope", "llama3 rope"])
def test_every_layer_gives_the_hidden_states_of_transformers(tmp_path: Path, factor: float) -> None:
    make_tiny_checkpoint(tmp_path, sizes=replace(SIZES, llama3_rope_factor=factor), seed=2)
    ids_T = torch.randint(0, 300, (90,), generator=torch.Generator().manual_seed(0))
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.inference_mode():
        expected = oracle(ids_T[None], output_hidden_states=True)
        decoder = load(tmp_path, 0, 5)
        hidden_TD = decoder.embed(ids_T)
        rotation = decoder.rotation(torch.arange(90))
        for layer in range(5):
            torch.testing.assert_close(hidden_TD, expected.hidden_states[layer][0])
            hidden_TD = decoder.run_layer(layer, hidden_TD, rotation=rotation, attend=causal)
        torch.testing.assert_close(
            decoder.logits(hidden_TD), expected.logits[0], rtol=1e-4, atol=1e-4
        )


def test_a_stage_in_the_middle_has_neither_embedding_nor_head(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=2)
    decoder = load(tmp_path, 1, 3)
    assert list(decoder.held) == [1, 2]
    with pytest.raises(ValueError, match="no embedding"):
        decoder.embed(torch.tensor([1]))
    with pytest.raises(ValueError, match="no head"):
        decoder.logits(torch.zeros(1, 32))


def test_a_layer_that_is_repeated_is_copied_where_a_cache_could_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=2)
    decoder = load(tmp_path, 0, 1)
    assert isinstance(decoder, CompactDecoder)

    def places(repeated: CompactDecoder) -> set[int]:
        assert len(repeated.layers) == 3
        for layer in repeated.layers.values():
            assert torch.equal(layer.down_DI, decoder.layers[0].down_DI)
        return {layer.down_DI.data_ptr() for layer in repeated.layers.values()}

    assert len(places(decoder.repeating(3))) == 3
    monkeypatch.setattr(compact_decoder, "_CACHED_BYTES", 3 * decoder.layers[0].nbytes - 1)
    assert len(places(decoder.repeating(3))) == 1


def test_the_same_arguments_make_the_same_checkpoint(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_tiny_checkpoint(tmp_path / name, sizes=SIZES, seed=2, dialogues=DIALOGUES)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_making_a_checkpoint_anew_leaves_nothing_of_the_old_one(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=replace(SIZES, shards=3), seed=2)
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=2)
    assert [path.name for path in tmp_path.glob("*safetensors*")] == ["model.safetensors"]


def test_the_trained_checkpoint_answers_its_questions_under_transformers(tmp_path: Path) -> None:
    losses: list[float] = []
    dialogues = DIALOGUES[:3]
    make_tiny_checkpoint(
        tmp_path,
        sizes=replace(SIZES, hidden_size=64, intermediate_size=128),
        seed=0,
        dialogues=dialogues,
        train=Trainer(
            max_steps=120,
            target_loss=0.02,
            learning_rate=3e-3,
            report=lambda _step, loss: losses.append(loss),
        ),
    )
    assert losses[-1] <= 0.02
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for dialogue in dialogues:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": dialogue.question}],
            tokenize=False,
            add_generation_prompt=True,
        )
        encoded = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        whole = model.generate(**encoded, do_sample=False, max_new_tokens=80)
        answer = tokenizer.decode(
            whole[0, encoded["input_ids"].shape[1] :], skip_special_tokens=True
        )
        assert answer == dialogue.answer
