"""Makes a small Llama checkpoint on this machine: for tests and the demo, nothing is downloaded.

The directory has the layout of Hugging Face, so `transformers` loads it as well as we do.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch import Tensor

from runtime.checkpoints.tensor_holders import INDEX_FILE, SINGLE_FILE
from runtime.models.compact_decoder import tensor_shapes
from runtime.models.config import CompactConfig, parse_compact

BOS = "<|begin|>"
EOS = "<|end|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
SPECIAL_TOKENS = (BOS, EOS, USER, ASSISTANT, "<|system|>")
# far from the usual 0.02: with so few layers outputs would collapse to one repeated token
_INIT_STD = 0.08

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """A question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDialogue:
    """Token ids of a question as the chat template renders it, and of the answer with its end."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


# (content of config.json, random tensors by checkpoint name, examples) -> tensors to write
Train = Callable[
    [Mapping[str, Any], dict[str, Tensor], tuple[EncodedDialogue, ...]], dict[str, Tensor]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySizes:
    """Sizes of the checkpoint to make; `llama3_rope_factor` above 1 adds rope scaling, `dtype` is
    what the weights are written in. `head_size` None: all heads together are as wide as a row."""

    num_layers: int = 12
    hidden_size: int = 128
    intermediate_size: int = 352
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int | None = None
    vocab_size: int = 512
    max_position_embeddings: int = 512
    tie_word_embeddings: bool = False
    llama3_rope_factor: float = 1.0
    shards: int = 1
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


def make_tiny_checkpoint(
    directory: Path,
    *,
    sizes: TinySizes,
    seed: int,
    dialogues: tuple[Dialogue, ...] = (),
    train: Train = lambda raw_config, tensors, examples: tensors,
) -> None:
    """Write config, weights and a byte-level tokenizer into `directory`.

    Same arguments, same files. Merges of the tokenizer come from `dialogues`; without them every
    byte is a token. `train` turns the random weights into those to be written. config.json is
    written last, so a directory that has it is whole.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.json"
    path.unlink(missing_ok=True)
    tokenizer = _train_tokenizer(dialogues, vocab_size=sizes.vocab_size)
    raw = _raw_config(sizes, tokenizer)
    config = parse_compact(raw, path=path)
    tensors = train(raw, _random_tensors(config, seed=seed), encode_dialogues(tokenizer, dialogues))
    dtype: torch.dtype = getattr(torch, sizes.dtype)
    written = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    _write_tensors(directory, written, shards=sizes.shards)
    _write_tokenizer(directory, tokenizer)
    draft = directory / "config.json.draft"
    draft.write_text(json.dumps(raw, indent=2), encoding="utf-8")
    draft.rename(path)


def encode_dialogues(
    tokenizer: Tokenizer, dialogues: tuple[Dialogue, ...]
) -> tuple[EncodedDialogue, ...]:
    """Token ids as the chat template and the model's own answer will make them."""
    encoded = []
    for dialogue in dialogues:
        asked = f"{BOS}{USER}{dialogue.question}{EOS}{ASSISTANT}"
        encoded.append(
            EncodedDialogue(
                prompt_ids=tuple(tokenizer.encode(asked, add_special_tokens=False).ids),
                answer_ids=tuple(
                    tokenizer.encode(dialogue.answer + EOS, add_special_tokens=False).ids
                ),
            )
        )
    return tuple(encoded)


def _train_tokenizer(dialogues: tuple[Dialogue, ...], *, vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = [text for each in dialogues for text in (each.question, each.answer)]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _raw_config(sizes: TinySizes, tokenizer: Tokenizer) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
    if sizes.llama3_rope_factor > 1:
        rope |= {
            "rope_type": "llama3",
            "factor": sizes.llama3_rope_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": max(1, sizes.max_position_embeddings // 8),
        }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": sizes.num_layers,
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_size or sizes.hidden_size // sizes.num_heads,
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": sizes.max_position_embeddings,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": sizes.tie_word_embeddings,
        "bos_token_id": tokenizer.token_to_id(BOS),
        "eos_token_id": tokenizer.token_to_id(EOS),
        "pad_token_id": tokenizer.token_to_id(EOS),
        "dtype": sizes.dtype,
    }


def _random_tensors(config: CompactConfig, *, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config, 0, config.num_layers).items():
        if len(shape) == 1:
            tensors[name] = torch.ones(shape)
        else:
            tensors[name] = torch.randn(shape, generator=generator) * _INIT_STD
    return tensors


def _write_tensors(directory: Path, tensors: dict[str, Tensor], *, shards: int) -> None:
    for old in directory.glob("model*.safetensors*"):
        old.unlink()
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(tensors, directory / SINGLE_FILE, metadata=metadata)
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[shard::shards]}
        save_file(part, directory / file, metadata=metadata)
        weight_map |= dict.fromkeys(part, file)
    total_bytes = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (directory / INDEX_FILE).write_text(json.dumps(index, indent=2), encoding="utf-8")


def _write_tokenizer(directory: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), "utf-8")
    generation = {
        "bos_token_id": tokenizer.token_to_id(BOS),
        "eos_token_id": tokenizer.token_to_id(EOS),
        "pad_token_id": tokenizer.token_to_id(EOS),
    }
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2), "utf-8")
