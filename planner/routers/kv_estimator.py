"""Estimates the KV cache that running requests will need on every node (Helix §5.2).

One unit throughout: token-layers, the room of one token in one layer. A page is `page_tokens`
tokens of one layer of one request, so a node's room is one number however many layers each
request runs there.
"""

from collections.abc import Hashable, Iterable, Mapping

from planner.domain.errors import PlannerError
from planner.domain.pipeline import Pipeline
from planner.routers.base import RequestSize


class KvEstimateError(PlannerError, ValueError):
    """An estimate asked about a node or request it does not know, or knows already."""


class KvEstimator:
    """Reserves (prompt + predicted output) x layers used, in whole pages, on every node of a route.

    A node has room for a request while the estimate stays below `high_water` x capacity; a request
    too long for that is still let onto an idle node that can hold it. Requests of others that take
    from the same room count as their node says (`set_elsewhere`), but a node is idle as long as
    nothing is reserved here: one request may always ask for its room there.
    """

    def __init__(
        self,
        *,
        capacity_token_layers: Mapping[str, float],
        page_tokens: int,
        high_water: float = 0.9,
    ) -> None:
        if page_tokens < 1:
            raise KvEstimateError(f"page_tokens is {page_tokens}; a page holds at least 1 token")
        if not 0 < high_water <= 1:
            raise KvEstimateError(f"high_water is {high_water}; it must be in (0, 1]")
        self._page_tokens = page_tokens
        self._high_water = high_water
        self._capacity = dict(capacity_token_layers)
        self._used = dict.fromkeys(self._capacity, 0)
        self._elsewhere: dict[str, float] = {}
        self._filled_to = {node: high_water * room for node, room in self._capacity.items()}
        self._room = dict(self._capacity)  # updated on change: routers read it far more often
        self._pages: dict[Hashable, int] = {}  # pages per layer reserved for each request
        self._pipelines: dict[Hashable, Pipeline] = {}

    def widen(self, nodes: Iterable[str], *, high_water: float) -> None:
        """Another plan takes from the same pages: know its nodes too, without room so far, and fill
        all of them up to its mark."""
        self._high_water = high_water
        for node in nodes:
            self._used.setdefault(node, 0)
            self._capacity.setdefault(node, 0.0)
        for node, room in self._capacity.items():
            self.set_capacity(node, token_layers=room)

    def set_capacity(self, node: str, *, token_layers: float) -> None:
        """Replace the room of `node`, e.g. by what its stage reports."""
        self._known(node)
        self._capacity[node] = token_layers
        self._filled_to[node] = self._high_water * token_layers
        self._room[node] = self._room_now(node)

    def set_elsewhere(self, node: str, *, token_layers: float) -> None:
        """Set the part of the node's room that is used by more than the reservations here."""
        self._elsewhere[self._known(node)] = token_layers
        self._room[node] = self._room_now(node)

    def elsewhere_token_layers(self, node: str) -> float:
        return self._elsewhere.get(self._known(node), 0.0)

    def capacity_token_layers(self, node: str) -> float:
        return self._capacity[self._known(node)]

    def used_token_layers(self, node: str) -> int:
        return self._used[self._known(node)]

    @property
    def rooms(self) -> Mapping[str, float]:
        """Token-layers by node that one more request may take now; follows what happens."""
        return self._room

    @property
    def rooms_when_idle(self) -> Mapping[str, float]:
        """Token-layers by node that a request may take when the node is idle."""
        return self._capacity

    def reserved_tokens(self, size: RequestSize) -> int:
        """Tokens of the pages that a request of this size reserves in every layer."""
        return self._pages_per_layer(size.total_tokens) * self._page_tokens

    def has_room(self, node: str, *, size: RequestSize, num_layers: int) -> bool:
        """Whether `num_layers` layers of a request of this size fit on `node` now."""
        return self.reserved_tokens(size) * num_layers <= self._room[self._known(node)]

    def admit(self, request: Hashable, pipeline: Pipeline, *, size: RequestSize) -> None:
        """Reserve room for `request` on every node of `pipeline`, even beyond the mark."""
        if request in self._pages:
            raise KvEstimateError(f"request {request} is admitted already; release it first")
        for stage in pipeline.stages:
            self._known(stage.node)
        self._pages[request] = 0
        self._pipelines[request] = pipeline
        self._reserve(request, pages=self._pages_per_layer(size.total_tokens))

    def grow(self, request: Hashable, *, total_tokens: int) -> None:
        """The sequence has `total_tokens` now: reserve more if that exceeds the prediction."""
        if request not in self._pages:
            raise KvEstimateError(f"request {request} holds nothing; admit it before it grows")
        pages = self._pages_per_layer(total_tokens)
        if pages > self._pages[request]:
            self._reserve(request, pages=pages)

    def release(self, request: Hashable) -> None:
        """Give back exactly what `request` holds. Raises KvEstimateError if it holds nothing."""
        if request not in self._pages:
            raise KvEstimateError(f"request {request} holds nothing; it was released or never came")
        self._reserve(request, pages=0)
        del self._pages[request]
        del self._pipelines[request]

    def _reserve(self, request: Hashable, *, pages: int) -> None:
        more_tokens = (pages - self._pages[request]) * self._page_tokens
        for stage in self._pipelines[request].stages:
            self._used[stage.node] += more_tokens * (stage.end - stage.first)
            self._room[stage.node] = self._room_now(stage.node)
        self._pages[request] = pages

    def _room_now(self, node: str) -> float:
        used = self._used[node]
        if not used:
            return self._capacity[node]
        return self._filled_to[node] - used - self._elsewhere.get(node, 0.0)

    def _pages_per_layer(self, tokens: int) -> int:
        return -(-tokens // self._page_tokens)

    def _known(self, node: str) -> str:
        if node not in self._capacity:
            known = ", ".join(sorted(self._capacity)) or "none"
            raise KvEstimateError(f"node {node!r} has no KV capacity here; known nodes: {known}")
        return node
