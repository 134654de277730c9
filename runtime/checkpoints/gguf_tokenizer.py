"""tokenizer.json and tokenizer_config.json of a checkpoint, from the metadata of a GGUF file.

Two kinds of vocabulary: byte-level BPE ("gpt2"), whose text is first split by the pattern that
`tokenizer.ggml.pre` names, and SentencePiece BPE ("llama"), whose merges follow from its scores.
Loads tokenizers, which the base install lacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.gguf_header import GgufHeader

_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
_NAMED_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_SPACE = "▁"
_LONGEST_PIECE = 512  # characters; longer tokens cannot come from merges
_REST_SPLIT = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS_SPLIT = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3_SPLIT = _WORDS_SPLIT + r"|\p{N}{1,3}" + _SIGNS_SPLIT + _REST_SPLIT
_QWEN2_SPLIT = _WORDS_SPLIT + r"|\p{N}" + _SIGNS_SPLIT + _REST_SPLIT
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _REST_SPLIT
)
_SPLITS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3_SPLIT),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2_SPLIT),
    "tekken": _TEKKEN_SPLIT,
}
_PLAIN = ("default", "gpt-2")  # the split of GPT-2, which tokenizers has built in
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
_WHOLE_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3", "tekken")  # before any merge


def tokenizer_of(header: GgufHeader) -> str:
    """The content of a tokenizer.json. Raises CheckpointError for a kind that is not known."""
    kind = header.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise CheckpointError(
            f"{header.path}: tokenizer.ggml.model is {str(kind)[:80]!r}; gpt2 and llama are "
            "supported: put the model's tokenizer.json beside the file, in a folder of its own"
        )
    tokens = _array(header, "tokens", str)
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if kind == "gpt2":
        tokenizer = _byte_level(header, vocabulary)
    else:
        tokenizer = _sentencepiece(header, tokens, vocabulary)
    tokenizer.add_tokens(_added_tokens(header, tokens))
    around = _around(header, tokens, adds_first=kind == "llama")
    if around:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[name for name in ("bos", "$A", "eos") if name in around or name == "$A"],
            special_tokens=[
                {"id": name, "ids": [token_id], "tokens": [tokens[token_id]]}
                for name, token_id in around.items()
            ],
        )
    return tokenizer.to_str()


def tokenizer_config_of(header: GgufHeader) -> dict[str, Any]:
    """The content of a tokenizer_config.json: the named special tokens and the chat template."""
    tokens = _array(header, "tokens", str)
    told: dict[str, Any] = {
        name: tokens[token_id]
        for name, key in _NAMED_TOKENS.items()
        if (token_id := _token_id(header, key, tokens)) is not None
    }
    template = header.get("tokenizer.chat_template")
    if template is not None:
        told["chat_template"] = template
    return told


def _array(header: GgufHeader, name: str, kind: type | tuple[type, ...]) -> list[Any]:
    key = f"tokenizer.ggml.{name}"
    found = header.get(key)
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found[:1]):
        raise CheckpointError(
            f"{header.path}: {key} is {str(found)[:80]!r}, not a list as a vocabulary needs it; "
            "download the file again"
        )
    return found


def _token_id(header: GgufHeader, key: str, tokens: Sequence[str]) -> int | None:
    found = header.get(f"tokenizer.ggml.{key}")
    if found is None:
        return None
    if not isinstance(found, int) or not 0 <= found < len(tokens):
        raise CheckpointError(
            f"{header.path}: tokenizer.ggml.{key} is {str(found)[:80]}, the vocabulary has "
            f"{len(tokens)} tokens; download the file again"
        )
    return found


def _added_tokens(header: GgufHeader, tokens: Sequence[str]) -> list[AddedToken]:
    """Tokens that are found in a text before it is split."""
    if header.length("tokenizer.ggml.token_type") is None:
        return []
    kinds = _array(header, "token_type", int)
    return [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _USER_DEFINED) and token
    ]


def _around(header: GgufHeader, tokens: Sequence[str], *, adds_first: bool) -> dict[str, int]:
    """The tokens of beginning and end around a text, as far as the model was taught so."""
    first = header.get("tokenizer.ggml.add_bos_token")
    if first is None:
        first = adds_first or header.get("tokenizer.ggml.pre") in ("llama-bpe", "tekken")
    wanted = {"bos": first, "eos": header.get("tokenizer.ggml.add_eos_token")}
    ids = {
        name: _token_id(header, f"{name}_token_id", tokens)
        for name, is_wanted in wanted.items()
        if is_wanted
    }
    return {name: token_id for name, token_id in ids.items() if token_id is not None}


def _byte_level(header: GgufHeader, vocabulary: Mapping[str, int]) -> Tokenizer:
    split = header.get("tokenizer.ggml.pre") or "default"
    if split not in (*_SPLITS, *_SINGLE_DIGITS, *_PLAIN):
        known = ", ".join((*_PLAIN, *_SPLITS, *_SINGLE_DIGITS))
        raise CheckpointError(
            f"{header.path}: tokenizer.ggml.pre is {str(split)[:80]!r}; supported are {known}: "
            "put the model's tokenizer.json beside the file, in a folder of its own"
        )
    merges = []
    for merge in _array(header, "merges", str):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise CheckpointError(
                f"{header.path}: tokenizer.ggml.merges has {merge[:80]!r}, which is not two tokens "
                "that make a third; download the file again"
            )
        merges.append((left, right))
    tokenizer = Tokenizer(
        models.BPE(vocab=dict(vocabulary), merges=merges, ignore_merges=split in _WHOLE_WORDS_FIRST)
    )
    steps: list[Any] = [
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split not in _SPLITS)
    ]
    if split in _SPLITS:
        steps.insert(0, pre_tokenizers.Split(Regex(_SPLITS[split]), behavior="isolated"))
    elif split in _SINGLE_DIGITS:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if _SPLITS.get(split) == _QWEN2_SPLIT:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(
    header: GgufHeader, tokens: Sequence[str], vocabulary: Mapping[str, int]
) -> Tokenizer:
    prepends = header.get("tokenizer.ggml.add_space_prefix") is not False
    unknown = _token_id(header, "unknown_token_id", tokens)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=dict(vocabulary),
            merges=_merges(tokens, _array(header, "scores", float), vocabulary),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=_SPACE, prepend_scheme="first" if prepends else "never", split=False
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prepends else []),
        ]
    )
    return tokenizer


def _merges(
    tokens: Sequence[str], scores: Sequence[float], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Each way to make a token of two others, the token of the highest score first."""
    found = []
    for token, score in zip(tokens, scores, strict=False):
        if len(token) > _LONGEST_PIECE:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                found.append((-score, -len(left), -len(right), left, right))
    found.sort(key=lambda each: each[:3])
    return [(left, right) for *_, left, right in found]
