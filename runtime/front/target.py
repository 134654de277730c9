"""What a request is sent to, and why that counts as no answer."""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from runtime.api.events import Event
from runtime.front.asked import Asked
from runtime.protocol.openai import ApiError

LACKING = frozenset({404, 405, 501})  # statuses of an endpoint that is not there
QUIET_S = 10.0  # a stream says that it lives when nothing else was said for so long
_OURS = frozenset({401, 403, 404, 405})  # the client was let in and its model is right: our fault
_MOST_SHOWN = 200
_CONTEXT_WORDS = re.compile(r"(?i)maximum (?:context|model) length|max_model_len")


class InstanceFailed(Exception):
    """The instance did not answer as it should; another may."""


class Unreachable(InstanceFailed):
    """The request never arrived there, so that it cannot be what the instance fails of."""


class Errored(InstanceFailed):
    """It says that it failed of this request, which may be the request's fault."""


class TooSlow(Exception):
    """The whole answer did not come in time; elsewhere it would take as long."""

    def __init__(self, patience_s: float) -> None:
        super().__init__(f"no answer within {patience_s:g} s; ask for fewer tokens")


class InstanceFull(Exception):
    """The instance takes no more now; another may. `retry_after_s` is what it said, if it did."""

    def __init__(self, message: str, *, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Refused(Exception):
    """The request itself is wrong, and would be anywhere; `content` is the instance's answer."""

    def __init__(self, *, status: int, content: bytes, media_type: str) -> None:
        super().__init__(f"refused with {status}")
        self.status = status
        self.content = content
        self.media_type = media_type


class Unfit(Refused):
    """This instance cannot answer it; another may."""

    reason = ""


class TooLong(Unfit):
    """It does not fit the context of this instance; another's may be larger."""

    reason = "the request is too long for its context"


class Lacks(Unfit):
    """This instance has no such endpoint; another may."""

    reason = "it has no such endpoint"

    def __init__(self, endpoint: str) -> None:
        error = ApiError(
            message=f"nothing that serves this model has {endpoint}; deploy a model that has, for "
            "example an embedding model in vLLM",
            code="no_such_endpoint",
        )
        content = json.dumps(error.body()).encode()
        super().__init__(status=404, content=content, media_type="application/json")


class Target(Protocol):
    """An instance, or the pipelines of this process.

    `passed_on` becomes the headers that the client gets, too. Both methods raise InstanceFailed,
    InstanceFull and Refused.
    """

    async def whole(
        self, asked: Asked, *, patience_s: float, passed_on: dict[str, str]
    ) -> dict[str, Any]:
        """The answer to a request that does not stream. Raises TooSlow."""

    def stream(self, asked: Asked, *, passed_on: dict[str, str]) -> AsyncGenerator[Event]:
        """Events as they come, a comment where there was none for `QUIET_S`; the last is the end of
        the stream."""


def refusal(
    status: int,
    content: bytes,
    *,
    media_type: str = "application/json",
    retry_after_s: float | None = None,
) -> InstanceFailed | InstanceFull | Refused:
    """What an answer with an error status means."""
    said = f"it answered {status}: {shown(content)}"
    if status == 429:
        return InstanceFull(said, retry_after_s=retry_after_s)
    if 400 <= status < 500 and status not in _OURS:
        kind = TooLong if status == 400 and _is_about_context(content) else Refused
        return kind(status=status, content=content, media_type=media_type)
    return Errored(said)


def shown(content: bytes) -> str:
    """The beginning of an answer, for a message."""
    return " ".join(content[:_MOST_SHOWN].decode(errors="replace").split()) or "nothing"


def _is_about_context(content: bytes) -> bool:
    """Our code for it, which is OpenAI's, or vLLM's words."""
    try:
        error = json.loads(content)["error"]
        code, message = error.get("code"), str(error.get("message"))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False
    return code == "context_length_exceeded" or _CONTEXT_WORDS.search(message) is not None
