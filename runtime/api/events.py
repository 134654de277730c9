"""Server-sent events of an OpenAI stream: written, cut out of bytes, read, counted; pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"  # a comment, which clients skip: more will be said
MOST_EVENT_BYTES = 4 << 20
_encode = json.JSONEncoder(separators=(",", ":")).encode
_MOST_TOKENS = 1 << 24  # of one request; who tells of more tells nothing


class Garbage(Exception):
    """What came is no event of an OpenAI stream; the message says what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`body` None: the end of the stream, or a comment (`is_comment`), which says nothing."""

    body: dict[str, Any] | None
    is_comment: bool = False

    @property
    def is_done(self) -> bool:
        return self.body is None and not self.is_comment

    @property
    def error(self) -> str | None:
        """What went wrong, in an event that says so."""
        told = None if self.body is None else self.body.get("error")
        if told is None:
            return None
        message = told.get("message") if isinstance(told, dict) else told
        return str(message)[:300]

    @property
    def tokens(self) -> int:
        """One for each choice that goes on by something; usage, where it comes, knows better."""
        return sum(1 for choice in self.choices if _tells(choice))

    @property
    def finished(self) -> int:
        """Choices that end with it."""
        return sum(1 for choice in self.choices if choice.get("finish_reason"))

    @property
    def choices(self) -> list[dict[str, Any]]:
        found = [] if self.body is None else self.body.get("choices")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @property
    def usage(self) -> tuple[int, int] | None:
        """Prompt and output tokens."""
        return None if self.body is None else usage_of(self.body)

    @property
    def is_usage_alone(self) -> bool:
        told = None if self.body is None else self.body.get("usage")
        return isinstance(told, dict) and not self.choices

    def chunks(self, *, model: str) -> list[dict[str, Any]]:
        """What it brings the client, who knows the model by that name."""
        if self.body is None:
            return []
        return [{**self.body, "model": model} if "model" in self.body else self.body]


COMMENT = Event(body=None, is_comment=True)


def usage_of(body: dict[str, Any]) -> tuple[int, int] | None:
    """Prompt and output tokens that an answer tells; None where it tells none that can be. An
    answer of embeddings has no output tokens."""
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    return (prompt, output) if _counts(prompt) and _counts(output) else None


class EventReader:
    """Cuts a stream of bytes, in pieces of any size, into events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end within `piece`. Raises Garbage."""
        self._rest = (self._rest + piece).replace(b"\r\n", b"\n")
        while b"\n\n" in self._rest:
            text, _, self._rest = self._rest.partition(b"\n\n")
            if text.strip():
                yield _event(text)
        if len(self._rest) > MOST_EVENT_BYTES:
            raise Garbage(f"an event of more than {MOST_EVENT_BYTES} bytes")

    @property
    def is_between_events(self) -> bool:
        return not self._rest.strip()


def encoded(body: Mapping[str, Any]) -> bytes:
    """JSON in ASCII: half a surrogate pair has no UTF-8."""
    return _encode(body).encode()


def stream_start(headers: Mapping[str, str]) -> dict[str, Any]:
    """The ASGI message that begins a stream."""
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            *((name.lower().encode(), value.encode()) for name, value in headers.items()),
        ],
    }


def stream_part(content: bytes, *, is_last: bool = False) -> dict[str, Any]:
    """The ASGI message with one or more events."""
    return {"type": "http.response.body", "body": content, "more_body": not is_last}


def _event(text: bytes) -> Event:
    data = []
    for line in text.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line.startswith((b":", b"event:", b"id:", b"retry:")):
            raise Garbage(f"{line[:80]!r} is no line of an event stream")
    joined = b"\n".join(data)
    if not joined:
        return COMMENT
    if joined == b"[DONE]":
        return Event(body=None)
    try:
        body = json.loads(joined)
    except (ValueError, RecursionError) as error:
        raise Garbage(f"{joined[:80]!r} is no JSON") from error
    if not isinstance(body, dict):
        raise Garbage(f"{joined[:80]!r} is no JSON object")
    return Event(body=body)


def _counts(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MOST_TOKENS


def _tells(choice: dict[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(
        delta.get(part) for part in ("content", "reasoning_content", "reasoning", "tool_calls")
    )
