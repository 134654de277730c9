"""What every router does: pick the pipeline of one request (Helix §5.1)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from planner.domain.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSize:
    """Tokens a request brings and is expected to produce; what KV room is reserved for."""

    prompt_tokens: int
    predicted_output_tokens: int

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.predicted_output_tokens < 0:
            raise ValueError(
                f"request size of {self.prompt_tokens} prompt and {self.predicted_output_tokens} "
                "output tokens; a request has at least one prompt token and no negative output"
            )

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.predicted_output_tokens


class Router(Protocol):
    """Used by the coordinator for live requests and by the simulator for emulated ones."""

    def choose(self, size: RequestSize, *, masked: Collection[str] = ()) -> Pipeline | None:
        """The next request's pipeline; None when no route has room now. Avoids `masked` nodes."""

    def can_ever_serve(self, size: RequestSize) -> bool:
        """Whether some route has room for the request once every node is idle."""
