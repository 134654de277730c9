"""What another API than OpenAI's makes of a chat completion; `runtime.dialects` has them."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from starlette.types import Scope

from runtime.protocol.openai import ApiError

Json = dict[str, Any]
TRANSLATION = "translation"  # in the state of a request that came by another API


class Translation(Protocol):
    """One request of another API. Every event that it makes names itself in `type`."""

    target: str  # the path that answers it

    def ignored(self, by_target: Iterable[str]) -> set[str]:
        """What the client gave and nothing depends on; the target names its parameters."""

    def request(self, body: bytes) -> Json:
        """The body for `target`. Raises ApiError."""

    def whole(self, answer: Json) -> Json:
        """The whole answer of the target, translated. Raises ApiError."""

    def part(self, chunk: Json) -> Iterator[Json]:
        """The events for one chunk of a stream. Raises ApiError."""

    def end(self) -> Iterator[Json]:
        """The events after the last chunk."""

    def refusal(self, error: ApiError) -> Json:
        """The body of an error answer."""

    def broken(self, error: ApiError) -> Iterator[Json]:
        """The last events of a stream that fails."""


def translation_of(scope: Scope) -> Translation | None:
    """None: the client asked by OpenAI's API."""
    found: Translation | None = scope.get("state", {}).get(TRANSLATION)
    return found
