"""Tokenizer, chat template, incremental text and stop strings."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from coordinator_doubles import write_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.checkpoints.errors import CheckpointError
from runtime.coordinator.text_stream import Detokenizer, StopStrings
from runtime.coordinator.tokenizer import CheckpointTokenizer, TokenizerError, load_tokenizer
from runtime.protocol.openai_parameters import ChatMessage
from tests.examples import examples


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CheckpointTokenizer:
    return load_tokenizer(write_checkpoint(tmp_path_factory.mktemp("checkpoint")))


def said(role: str, text: str) -> ChatMessage:
    return ChatMessage.model_validate({"role": role, "content": text})


def pieces(tokenizer: CheckpointTokenizer, token_ids: list[int]) -> list[str]:
    stream = Detokenizer(tokenizer.decode)
    return [*(stream.push(token) for token in token_ids), stream.flush()]


@given(st.text(max_size=40))
@settings(max_examples=examples(150))
def test_any_text_comes_out_piece_by_piece_as_it_went_in(text: str) -> None:
    tokenizer = _shared()
    out = pieces(tokenizer, tokenizer.encode_text(text))
    assert "".join(out) == text
    assert all("\ufffd" not in piece for piece in out) or "\ufffd" in text


@given(st.lists(st.integers(0, 260), max_size=60))
@settings(max_examples=examples(200))
def test_any_tokens_even_malformed_ones_decode_as_they_would_all_at_once(ids: list[int]) -> None:
    tokenizer = _shared()
    assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)


def test_endless_malformed_output_is_decoded_in_a_window_of_bounded_length(
    tokenizer: CheckpointTokenizer,
) -> None:
    malformed = next(token for token in range(256) if tokenizer.decode([token]) == "\ufffd")
    lengths: list[int] = []

    def decode(token_ids: Sequence[int]) -> str:
        lengths.append(len(token_ids))
        return tokenizer.decode(token_ids)

    stream = Detokenizer(decode)
    text = "".join(stream.push(malformed) for _ in range(2000)) + stream.flush()
    assert text == "\ufffd" * 2000
    assert max(lengths) < 200


def test_a_character_split_over_tokens_is_held_until_it_is_whole(
    tokenizer: CheckpointTokenizer,
) -> None:
    token_ids = tokenizer.encode_text("a😀b")
    assert len(token_ids) == 6
    assert pieces(tokenizer, token_ids) == ["a", "", "", "", "😀", "b", ""]


@given(
    text=st.text(alphabet="abc", max_size=30),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4),
    data=st.data(),
)
@settings(max_examples=examples(300))
def test_stop_strings_cut_at_the_first_match_however_the_text_is_split(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    cutter = StopStrings(stops)
    out, rest = "", text
    while rest and cutter.matched is None:
        size = data.draw(st.integers(1, len(rest)))
        out += cutter.push(rest[:size])
        rest = rest[size:]
        assert text.startswith(out)
    if cutter.matched is None:
        out += cutter.flush()
        assert out == text
        assert not any(stop in text for stop in stops)
    else:
        assert cutter.matched in stops
        assert not any(stop in out for stop in stops)
        assert text[len(out) :].startswith(cutter.matched)


def test_the_chat_template_is_rendered_with_special_tokens(tokenizer: CheckpointTokenizer) -> None:
    token_ids = tokenizer.encode_chat([said("developer", "Be kind."), said("user", "hi")])
    expected = "<|bos|><|system|>Be kind.<|user|>hi<|assistant|>"
    assert token_ids == tokenizer.encode_text(expected)
    assert tokenizer.decode(token_ids) == "Be kind.hi"


def test_messages_the_template_refuses_are_an_error_with_its_words(
    tokenizer: CheckpointTokenizer,
) -> None:
    with pytest.raises(TokenizerError, match="the user must speak first"):
        tokenizer.encode_chat([said("assistant", "hi")])


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path: Path) -> None:
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    tokenizer = load_tokenizer(write_checkpoint(tmp_path, chat_template=escape))
    with pytest.raises(TokenizerError, match="unsafe"):
        tokenizer.encode_chat([said("user", "hi")])


def test_a_template_file_beside_the_checkpoint_goes_first(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, chat_template=[{"name": "default", "template": "from the list"}])
    listed = load_tokenizer(tmp_path).encode_chat([said("user", "x")])
    assert load_tokenizer(tmp_path).decode(listed) == "from the list"
    (tmp_path / "chat_template.jinja").write_text("from the file")
    filed = load_tokenizer(tmp_path).encode_chat([said("user", "x")])
    assert load_tokenizer(tmp_path).decode(filed) == "from the file"


def test_stop_token_ids_are_those_of_the_generation_config_and_the_tokenizer(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path)
    assert load_tokenizer(tmp_path).stop_token_ids == (257,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 257, 4]}))
    assert load_tokenizer(tmp_path).stop_token_ids == (3, 257, 4)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", None, "tokenizer.json does not exist; the coordinator needs"),
        ("tokenizer.json", "{}", "is not a tokenizer"),
        ("config.json", "{", "config.json is not JSON"),
        ("config.json", "[]", "holds a JSON list"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id of .* is 'x'"),
        ("generation_config.json", '{"temperature": "hot"}', "temperature of .* is 'hot': "),
        ("generation_config.json", '{"top_p": 0}', "top_p of .* is 0: "),
        ("chat_template.jinja", "{% if %}", "no valid Jinja: line 1"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "default"}]}', "chat_template of"),
        ("tokenizer_config.json", '{"chat_template": 5}', "chat_template of"),
        ("config.json", '{"vocab_size": "many"}', "vocab_size of .* is 'many'"),
    ],
)
def test_an_unusable_checkpoint_is_an_error_naming_the_file(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    write_checkpoint(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=words):
        load_tokenizer(tmp_path)


_cache: list[CheckpointTokenizer] = []


@pytest.fixture(autouse=True)
def _remember(tokenizer: CheckpointTokenizer) -> None:
    _cache[:] = [tokenizer]


def _shared() -> CheckpointTokenizer:
    return _cache[0]
