"""What every router does: pick the pipeline of one request (Helix §5.1)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from planner.domain.pipeline import Pipeline

Hop: TypeAlias = tuple[str, str]  # from one node to the next


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

    def choose(
        self, size: RequestSize, *, masked: Collection[str] = (), cut: Collection[Hop] = ()
    ) -> Pipeline | None:
        """The next request's pipeline; None when no route has room now.

        Avoids `masked` nodes and the hops in `cut`, whose two ends may be fine.
        """

    def can_ever_serve(self, size: RequestSize) -> bool:
        """Whether some route has room for the request once every node is idle."""

    def entered_when_idle(self, size: RequestSize) -> frozenset[str]:
        """Nodes of all routes that would have room for the request if every node were idle."""

    def take_over(self, before: "Router") -> None:
        """Start from the load that the router of the plan before has seen, normalised.

        So a plan change makes no burst, and a node that is new does not swallow the traffic.
        """


class LoadView(Protocol):
    """What is going on at the nodes, as far as a coordinator knows."""

    def queued(self, node: str) -> int:
        """What waits for the node, as far as it is known."""

    def in_flight(self, node: str) -> int:
        """Requests that are running through the node."""

    def tokens_per_s(self, node: str) -> float | None:
        """Prompt and output tokens that passed the node lately; None before anything did."""
