"""Ask an OpenAI endpoint: the pieces of its answer as they come, and refusals as exceptions."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from helixweb.client import ClientError, NotTheApi
from helixweb.client.connection import checked_url, unreachable
from helixweb.client.errors import problem_of

PATH = "/chat/completions"
# Between two tokens a request may wait in the coordinator's queue.
TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`url` ends with /v1."""

    url: str
    model: str
    key: str


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came. `ttft_s` is None without any text; `helix` is what our coordinator adds."""

    text: str = ""
    pieces: int = 0
    finish_reason: str | None = None
    completion_tokens: int | None = None
    ttft_s: float | None = None
    e2e_s: float = 0.0
    helix: Mapping[str, Any] | None = None

    @property
    def output_tokens(self) -> int:
        """As the endpoint counts them, else the pieces that came."""
        return self.completion_tokens or self.pieces

    @property
    def tpot_s(self) -> float | None:
        """(e2e - TTFT)/(output tokens - 1), None for a single token."""
        if self.ttft_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


class StreamBroken(ClientError):
    """The answer ended with an error, or with something that is no chunk."""


def base_url(address: str) -> str:
    """With /v1, whether or not it was given. Raises BadAddress."""
    plain = checked_url(address)
    return plain if plain.endswith("/v1") else f"{plain}/v1"


def ask(
    http: httpx.Client,
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    hear: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> Answer:
    """The whole answer; `hear` gets its text piece by piece. Options that are None are left out.

    Raises ClientError.
    """
    body = {name: value for name, value in options.items() if value is not None} | {
        "model": endpoint.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    answer, begin = Answer(), time.monotonic()
    try:
        with http.stream("POST", endpoint.url + PATH, json=body, headers=headers) as response:
            if not response.is_success:
                response.read()
                raise _refusal(response)
            for line in response.iter_lines():
                if line.startswith("data:") and (text := _take(line, answer)):
                    answer.pieces += 1
                    if answer.ttft_s is None:
                        answer.ttft_s = time.monotonic() - begin
                    hear(text)
    except httpx.TransportError as error:
        raise unreachable(endpoint.url, error) from error
    answer.e2e_s = time.monotonic() - begin
    return answer


def _take(line: str, answer: Answer) -> str:
    """Add one chunk to the answer; its text. Raises StreamBroken."""
    content = line.removeprefix("data:").strip()
    if content == "[DONE]":
        return ""
    try:
        chunk = json.loads(content)
        if chunk.get("error"):
            raise StreamBroken(_message(chunk))
        choice = (chunk.get("choices") or [{}])[0]
        text = (choice.get("delta") or {}).get("content") or ""
        tokens = (chunk.get("usage") or {}).get("completion_tokens")
        answer.text += text
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        answer.completion_tokens = tokens or answer.completion_tokens
        answer.helix = chunk.get("helix") or answer.helix
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StreamBroken(f"the endpoint sent {content[:80]!r}, which is no chunk") from error
    return str(text)


def _refusal(answer: httpx.Response) -> ClientError:
    """Of an answer that is no success; its body has been read."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return NotTheApi(
            f"{answer.url.copy_with(query=None)} answered {answer.status_code}, but not as an "
            "OpenAI API does; is it the address of a coordinator?"
        )
    title = answer.reason_phrase
    return problem_of(answer, {"title": title, "detail": _message(document) or title})


def _message(document: Mapping[str, Any]) -> str:
    error = document.get("error", document)
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("detail") or "refused")
    return str(error)
