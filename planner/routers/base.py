"""Interface of routers, which choose the pipeline of one request (Helix §5.1)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from planner.domain.cluster import SINK, SOURCE
from planner.domain.pipeline import Pipeline

if TYPE_CHECKING:
    from planner.routers.hops import Hops

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


class Router(ABC):
    """Used by the coordinator for live requests and by the simulator for emulated ones."""

    def __init__(self, hops: "Hops") -> None:
        self._hops = hops

    @abstractmethod
    def choose(
        self, size: RequestSize, *, masked: Collection[str] = (), cut: Collection[Hop] = ()
    ) -> Pipeline | None:
        """The next request's pipeline; None when no route has room now.

        Avoids `masked` nodes and the hops in `cut` (the nodes at either end may be used).
        """

    def can_ever_serve(self, size: RequestSize) -> bool:
        """Whether some route has room for the request once every node is idle."""
        return bool(self._hops.open_when_idle(size)[SOURCE])

    def entered_when_idle(self, size: RequestSize) -> frozenset[str]:
        """Nodes of all routes that would have room for the request if every node were idle."""
        hops = self._hops.open_when_idle(size)
        return frozenset(
            target for targets in hops.values() for target in targets if target != SINK
        )

    @abstractmethod
    def take_over(self, before: "Router") -> None:
        """Start from the load that the router of the plan before has seen, normalised.

        So a plan change makes no burst, and a node that is new does not swallow the traffic.
        """


class InstanceRouter:
    """Chooses a whole-model instance for every request, and is notified when a request ends."""

    def __init__(self, names: Collection[str]) -> None:
        """Raises ValueError without instances."""
        if not names:
            raise ValueError("no instance to choose from")
        self._counts = dict.fromkeys(names, 0)  # of requests under way
        self._under_way: dict[Hashable, str] = {}

    def choose(
        self, request: Hashable, size: RequestSize, *, masked: Collection[str] = ()
    ) -> str | None:
        """Choose an instance and count the request there; None if all are `masked`.

        Raises ValueError for a request that is already counted.
        """
        if request in self._under_way:
            raise ValueError(f"request {request!r} is under way; end it before it is routed again")
        among = [name for name in self._counts if name not in masked]
        if not among:
            return None
        chosen = self._under_way[request] = self._chosen(request, size, among)
        self._counts[chosen] += 1
        return chosen

    def _chosen(self, request: Hashable, size: RequestSize, among: Sequence[str]) -> str:
        """Choose from `among`, the unmasked instances in their order: by default the first with the
        fewest requests in flight."""
        return min(among, key=lambda name: self._counts[name])

    def end(self, request: Hashable) -> None:
        """Remove a request that ended or was given up. Raises KeyError if unknown."""
        self._counts[self._under_way.pop(request)] -= 1

    def observe_kv_usage(self, instance: str, ratio: float | None) -> None:
        """Set KV usage, 0 to 1, from the instance's own metrics; None: no longer reported."""

    def observe_kv_room(self, instance: str, tokens: int) -> None:
        """The instance has room for that many tokens, whatever was assumed."""


class LoadView(Protocol):
    """Load of the nodes as far as a coordinator knows."""

    def queued(self, node: str) -> int:
        """Number of requests that wait for the node, as far as known."""

    def in_flight(self, node: str) -> int:
        """Requests that are running through the node."""

    def tokens_per_s(self, node: str) -> float | None:
        """Prompt and output tokens that passed the node lately; None before anything did."""
