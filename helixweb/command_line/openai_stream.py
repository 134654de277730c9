"""What an OpenAI endpoint streams: its chunks, and its refusals as the client's exceptions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from helixweb.client import ClientError, NotTheApi
from helixweb.client.connection import checked_url
from helixweb.client.errors import problem_of

PATH = "/chat/completions"
# Between two tokens a request may wait in the coordinator's queue.
TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """`text` may be empty; `usage` and `helix` come with the last ones."""

    text: str
    finish_reason: str | None
    completion_tokens: int | None
    helix: Mapping[str, Any] | None


class StreamBroken(ClientError):
    """The answer ended with an error, or with something that is no chunk."""


def base_url(address: str) -> str:
    """With /v1, whether or not it was given. Raises BadAddress."""
    plain = checked_url(address)
    return plain if plain.endswith("/v1") else f"{plain}/v1"


def chat_body(
    messages: list[dict[str, str]], *, model: str, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    """A request that streams and tells its usage."""
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if temperature is not None:
        body["temperature"] = temperature
    return body


def chunk_of(line: str) -> Chunk | None:
    """Of one line of the stream; None: nothing to show. Raises StreamBroken."""
    if not line.startswith("data:"):
        return None
    text = line.removeprefix("data:").strip()
    if text == "[DONE]":
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StreamBroken(f"the endpoint sent {text[:80]!r}, which is no chunk") from error
    try:
        if content.get("error"):
            raise StreamBroken(_message(content))
        choice = (content.get("choices") or [{}])[0]
        usage = content.get("usage") or {}
        return Chunk(
            text=(choice.get("delta") or {}).get("content") or "",
            finish_reason=choice.get("finish_reason"),
            completion_tokens=usage.get("completion_tokens"),
            helix=content.get("helix"),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise StreamBroken(f"the endpoint sent {text[:80]!r}, which is no chunk") from error


def refusal(answer: httpx.Response) -> ClientError:
    """Of an answer that is no success; its body must have been read."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return NotTheApi(
            f"{answer.url.copy_with(query=None)} answered {answer.status_code}, but not as an "
            "OpenAI API does; is it the address of a coordinator?"
        )
    told = _message(document)
    wait = answer.headers.get("Retry-After", "")
    return problem_of(
        status=answer.status_code,
        document={"title": answer.reason_phrase, "detail": told or answer.reason_phrase},
        retry_after_s=float(wait) if wait.isdecimal() else None,
    )


def _message(document: Mapping[str, Any]) -> str:
    error = document.get("error", document)
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("detail") or "refused")
    return str(error)
