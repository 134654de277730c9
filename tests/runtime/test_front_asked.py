"""What is read of requests and of event streams; pure."""

import json
import random
from typing import Any

import pytest

from runtime.api.events import Event, EventReader, Garbage
from runtime.front.asked import Asked, TokenLengths, read_asked
from runtime.protocol.openai import ApiError

STREAM = b': hi\r\n\r\ndata: {"choices": [{"text": "\xc3\xa9"}]}\n\nevent: x\ndata: {"a":\ndata: 1}\n\ndata: [DONE]\n\n'  # noqa: E501
EVENTS = [
    Event(body=None, is_comment=True),
    Event(body={"choices": [{"text": "é"}]}),
    Event(body={"a": 1}),
    Event(body=None),
]


@pytest.mark.parametrize("seed", range(20))
def test_events_are_the_same_in_whatever_pieces_they_come(seed: int) -> None:
    chance, reader, seen, rest = random.Random(seed), EventReader(), [], STREAM
    while rest:
        size = chance.randint(1, 30)
        seen += list(reader.feed(rest[:size]))
        rest = rest[size:]
    assert seen == EVENTS
    assert reader.is_between_events


@pytest.mark.parametrize(
    "piece", [b"<html>\n\n", b"data: {\n\n", b"data: 7\n\n", b"data: \xff\n\n", b"x" * (5 << 20)]
)
def test_what_is_no_event_is_garbage(piece: bytes) -> None:
    with pytest.raises(Garbage):
        list(EventReader().feed(piece))


@pytest.mark.parametrize(
    ("prompt", "chars", "tokens"),
    [
        ("four", 4, None),
        (["four"], 4, None),
        ([1, 2, 3], 0, 3),
        ([[1, 2, 3]], 0, 3),
        ([True], 0, None),
        ([[1], [2]], 0, None),
    ],
)
def test_the_size_of_a_prompt_is_counted_or_guessed(
    prompt: object, chars: int, tokens: int | None
) -> None:
    asked = asked_of({"model": "m", "prompt": prompt})
    assert (asked.prompt_chars, asked.prompt_tokens) == (chars, tokens)


def test_characters_of_a_token_are_learnt_within_reason() -> None:
    lengths, asked = TokenLengths(), asked_of({"model": "m", "prompt": "x" * 1000})
    assert lengths.prompt_tokens(asked) == 250
    for _ in range(200):
        lengths.observe(asked, 500)
    assert lengths.prompt_tokens(asked) == pytest.approx(500, rel=0.02)
    for _ in range(200):
        lengths.observe(asked, 1)
    assert lengths.prompt_tokens(asked) == pytest.approx(125, rel=0.02)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "A" * 1_000_000, "format": "wav"}}


@pytest.mark.parametrize("media", [IMAGE, AUDIO])
def test_pictures_and_sounds_are_not_counted_as_text_and_teach_nothing(
    media: dict[str, Any],
) -> None:
    def chat(*parts: dict[str, Any]) -> Asked:
        text = {"type": "text", "text": "What is it?"}
        body = {"model": "m", "messages": [{"role": "user", "content": [text, *parts]}]}
        return read_asked("/v1/chat/completions", json.dumps(body).encode(), model_name="m")

    lengths, plain, shown = TokenLengths(), chat(), chat(media)
    assert shown.prompt_chars == plain.prompt_chars
    before = lengths.prompt_tokens(plain)
    for _ in range(100):
        lengths.observe(shown, 1500)
    assert lengths.prompt_tokens(plain) == before


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"7", b"\xff", b'{"model": 1}', b"[" * 9999])
def test_what_cannot_be_routed_is_refused(content: bytes) -> None:
    with pytest.raises(ApiError):
        read_asked("/v1/completions", content, model_name="m")


def asked_of(body: dict[str, Any]) -> Asked:
    return read_asked("/v1/completions", json.dumps(body).encode(), model_name="m")
