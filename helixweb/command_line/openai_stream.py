"""Ask an OpenAI endpoint: the pieces of its answer as they come, and refusals as exceptions."""

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from helixweb.client import (
    ClientError,
    NotTheApi,
    Problem,
    checked_key,
    checked_url,
    trusts_environment,
    unreachable,
    verification,
)
from helixweb.command_line.command import argument
from helixweb.command_line.failures import CommandFailed, NoSuchName
from helixweb.command_line.resolve import cluster_named, deployment_of
from helixweb.command_line.resource import CLUSTER
from helixweb.command_line.session import Session

PATH = "/chat/completions"
# Between two tokens a request may wait in the coordinator's queue.
TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=300.0)


def endpoint_options(parser: ArgumentParser) -> None:
    """The options that `endpoint_of` reads."""
    argument("--endpoint", metavar="URL", help="any OpenAI API, without asking the site")(parser)
    argument("--model", help="its name there (needed with --endpoint)")(parser)
    CLUSTER(parser)


@dataclass(slots=True, kw_only=True)
class Answer:
    """An answer. `ttft_s` is None without any text; `helix` is our coordinator's addition."""

    text: str = ""
    pieces: int = 0
    finish_reason: str | None = None
    completion_tokens: int | None = None
    ttft_s: float | None = None
    e2e_s: float = 0.0
    helix: Mapping[str, Any] | None = None

    @property
    def output_tokens(self) -> int:
        """Output tokens as the endpoint counts them, else the number of pieces received."""
        return self.completion_tokens or self.pieces

    @property
    def tpot_s(self) -> float | None:
        """(e2e - TTFT)/(output tokens - 1), None for a single token."""
        if self.ttft_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


class StreamBroken(ClientError):
    """The answer ended with an error, or with something that is no chunk."""


def endpoint_of(site: Session) -> tuple[httpx.Client, str]:
    """The OpenAI endpoint and model that the options name. Raises CommandFailed, ClientError."""
    given = site.arguments
    if given.endpoint is not None:
        if given.model is None:
            raise NoSuchName("--endpoint needs --model: the name of the model there")
        # The key that `login` saved is sent to the site only.
        return _connection(site, given.endpoint, site.given_key), given.model
    cluster = cluster_named(site, given.cluster)
    model = given.model or deployment_of(site, None, given.cluster)["model_name"]
    rows = [one for one in site.client.coordinators.all(cluster=cluster["id"]) if one["http_url"]]
    if not rows:
        raise CommandFailed(
            f"no coordinator of cluster {cluster['name']} has said where it is reached; start it "
            "with --host and --port, or give --endpoint URL"
        )
    first = min(rows, key=lambda one: one["state"] != "online")
    return _connection(site, first["http_url"], site.settings.key), model


def _connection(site: Session, address: str, key: str) -> httpx.Client:
    """A connection to an address with or without /v1. Raises BadAddress."""
    base = f"{checked_url(address).removesuffix('/v1')}/v1"
    return httpx.Client(
        base_url=base,
        headers={"Authorization": f"Bearer {checked_key(key)}"} if key else {},
        timeout=TIMEOUT,
        verify=verification(address, site.ca),
        limits=httpx.Limits(max_connections=None),
        transport=site.around.transport,
        trust_env=trusts_environment(base),
    )


def ask(
    http: httpx.Client,
    model: str,
    messages: list[dict[str, str]],
    hear: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> Answer:
    """The whole answer; `hear` gets its text piece by piece. Options that are None are left out.

    Raises ClientError.
    """
    body = {name: value for name, value in options.items() if value is not None} | {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer, begin = Answer(), time.monotonic()
    try:
        with http.stream("POST", PATH, json=body) as response:
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
        raise unreachable(str(http.base_url), error) from error
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
    """The error of an unsuccessful answer, whose body has been read."""
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
    return Problem.of(answer, {"title": title, "detail": _message(document) or title})


def _message(document: Mapping[str, Any]) -> str:
    error = document.get("error", document)
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("detail") or "refused")
    return str(error)
