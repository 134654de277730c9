"""What the coordinator knows of the load of its nodes, as routers ask for it."""

from collections import Counter
from collections.abc import Hashable

from planner.domain.pipeline import Pipeline
from planner.routers.measured_rates import MeasuredRates


class NodeLoad:
    """Requests under way, of which those without a first token count as queued: a `LoadView`."""

    def __init__(self, rates: MeasuredRates) -> None:
        self._rates = rates
        self._pipelines: dict[Hashable, Pipeline] = {}
        self._in_prompt: set[Hashable] = set()
        self._running_at: Counter[str] = Counter()
        self._queued_at: Counter[str] = Counter()

    def admit(self, request: Hashable, pipeline: Pipeline) -> None:
        """Its prompt is on its way."""
        self._pipelines[request] = pipeline
        self._in_prompt.add(request)
        for stage in pipeline.stages:
            self._running_at[stage.node] += 1
            self._queued_at[stage.node] += 1

    def token(self, request: Hashable) -> None:
        """A token of it came, so its prompt has passed every stage."""
        if request in self._in_prompt:
            self._in_prompt.discard(request)
            for stage in self._pipelines[request].stages:
                self._queued_at[stage.node] -= 1

    def release(self, request: Hashable) -> None:
        """It has left, with or without a token."""
        pipeline = self._pipelines.pop(request)
        was_in_prompt = request in self._in_prompt
        self._in_prompt.discard(request)
        for stage in pipeline.stages:
            self._running_at[stage.node] -= 1
            self._queued_at[stage.node] -= was_in_prompt

    def queued(self, node: str) -> int:
        """Requests whose prompt has not passed all stages yet."""
        return self._queued_at[node]

    def in_flight(self, node: str) -> int:
        """Requests that are running through the node."""
        return self._running_at[node]

    def tokens_per_s(self, node: str) -> float | None:
        """Prompt and output tokens that passed the node lately; None before anything did."""
        return self._rates.tokens_per_s(node)
