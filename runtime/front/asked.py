"""What is asked of the front, as far as it must be understood to route it; pure.

Bodies go to the instances as they came, but for the model's name: which parameters are right is the
engine's to say.
"""

import json
from dataclasses import dataclass
from typing import Any

from runtime.openai_app import Endpoint
from runtime.protocol.openai import ApiError, model_not_found
from runtime.protocol.prefix_salts import prefix_salt

# Parts of a body of which one is the prompt, and the part of an answer that shows it is one.
_PROMPTS: dict[Endpoint, tuple[str, ...]] = {
    "/v1/chat/completions": ("messages",),
    "/v1/completions": ("prompt",),
    "/v1/embeddings": ("input",),
    "/tokenize": ("messages", "prompt"),
}
_ANSWERS: dict[Endpoint, str] = {"/v1/embeddings": "data", "/tokenize": "tokens"}
FIRST_CHARS_PER_TOKEN = 4.0
_COMPLETION_DEFAULT_TOKENS = 16  # as OpenAI's /v1/completions
_MOST_COUNTED = 1 << 24
# Keys of content parts that are no text, often megabytes in base64.
_MEDIA = frozenset({
    "audio_url", "file", "image", "image_embeds", "image_pil", "image_url", "input_audio",
    "input_image", "video", "video_url",
})  # fmt: skip
_LEAST_CHARS, _MOST_CHARS = 1.0, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`prompt_tokens` where token ids were sent, else `prompt_chars` of text; `has_media`: of more
    than text, so that its tokens say nothing of its characters. `max_tokens` None: the client set
    no limit. `wants_usage`: of a stream, and will be told. `asker`: the hash of the client's
    key."""

    endpoint: Endpoint
    body: dict[str, Any]
    stream: bool
    wants_usage: bool
    choices: int
    max_tokens: int | None
    prompt_chars: int
    prompt_tokens: int | None
    has_media: bool = False
    asker: str = ""

    @property
    def generates(self) -> bool:
        """False where nothing is written, so that not every instance has the endpoint."""
        return self.endpoint not in _ANSWERS

    @property
    def answer_part(self) -> str:
        """The list that a whole answer has."""
        return _ANSWERS.get(self.endpoint, "choices")

    def body_for(self, model: str, *, with_usage: bool, with_salt: bool) -> bytes:
        """As an instance gets it.

        `with_usage`: a stream must end with its token counts. `with_salt`: the instance's prefix
        cache is divided by key; a client's own `cache_salt` divides that of its key.
        """
        body = {**self.body, "model": model}
        if with_usage and self.stream:
            options = self.body.get("stream_options")
            body["stream_options"] = {
                **(options if isinstance(options, dict) else {}),
                "include_usage": True,
            }
        wanted = self.body.get("cache_salt") or ""
        if with_salt and self.generates and self.asker and isinstance(wanted, str):
            body["cache_salt"] = prefix_salt(self.asker, wanted).hex()
        return json.dumps(body).encode()  # ASCII: half a surrogate pair has no UTF-8


class TokenLengths:
    """Characters of a prompt's token, from what instances counted lately."""

    def __init__(self) -> None:
        self._chars_per_token = FIRST_CHARS_PER_TOKEN

    def prompt_tokens(self, asked: Asked) -> int:
        """At least 1."""
        if asked.prompt_tokens is not None:
            return max(1, asked.prompt_tokens)
        return max(1, round(asked.prompt_chars / self._chars_per_token))

    def observe(self, asked: Asked, prompt_tokens: int) -> None:
        """An instance counted that many."""
        if asked.has_media:
            return
        if asked.prompt_tokens is None and prompt_tokens > 0 and asked.prompt_chars > 0:
            seen = min(_MOST_CHARS, max(_LEAST_CHARS, asked.prompt_chars / prompt_tokens))
            self._chars_per_token += (seen - self._chars_per_token) / 20


def read_asked(endpoint: Endpoint, content: bytes, *, model_name: str) -> Asked:
    """Raises ApiError 400 or 404."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ApiError(message=f"the body is no JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise ApiError(message="the body is no JSON object", code="invalid_json")
    model = body.get("model")
    if model != model_name:
        raise model_not_found(model, available=model_name)
    parts = _PROMPTS[endpoint]
    part = next((part for part in parts if body.get(part)), None)
    if part is None:
        raise ApiError(
            message=f"{parts[0]!r} is missing or empty; send one",
            param=parts[0],
            code="invalid_value",
        )
    limit = _count(body, "max_completion_tokens") or _count(body, "max_tokens")
    if endpoint in _ANSWERS:
        limit = 1
    elif limit is None and endpoint == "/v1/completions":
        limit = _COMPLETION_DEFAULT_TOKENS
    options = body.get("stream_options")
    size = _prompt_size(body[part])
    return Asked(
        endpoint=endpoint,
        body=body,
        stream=body.get("stream") is True and endpoint not in _ANSWERS,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        choices=_count(body, "n") or 1,
        max_tokens=limit,
        prompt_chars=size.chars,
        prompt_tokens=size.tokens,
        has_media=size.has_media,
    )


def _count(body: dict[str, Any], name: str) -> int | None:
    """A number above 0, as far as it matters; what is none is the engine's to refuse."""
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return None
    return min(value, _MOST_COUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Of a prompt: characters of its texts, or tokens if it is made of token ids."""

    chars: int = 0
    tokens: int | None = None
    has_media: bool = False


def _prompt_size(prompt: object) -> _Size:
    if isinstance(prompt, list):
        ids = prompt[0] if len(prompt) == 1 and isinstance(prompt[0], list) else prompt
        if ids and all(type(token) is int for token in ids):
            return _Size(tokens=len(ids))
    chars, has_media, waiting = 0, False, [prompt]
    while waiting:  # however it is nested
        part = waiting.pop()
        if isinstance(part, str):
            chars += len(part)
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            if _MEDIA.isdisjoint(part):
                waiting.extend(part.values())
            else:
                has_media = True
    return _Size(chars=chars, has_media=has_media)
