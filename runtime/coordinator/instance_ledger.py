"""Counts what instances answer into the coordinator's numbers, as pipelines' requests are counted.

What went to the plan's own pipelines is left out: the dispatcher counts that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.domain.pipeline import Pipeline
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.request_stats import RequestStats
from runtime.front.ledger import Ledger
from runtime.protocol.instance_orders import PIPELINES
from runtime.protocol.trace_context import TRACE


@dataclass(slots=True, kw_only=True, eq=False)
class InstanceLedger(Ledger):
    """Counts requests of instances as those of pipelines are counted; answers call it.

    `pipelines`: by instance, its node as the one stage of all layers. `traced` is given every
    request that ends at an instance.
    """

    stats: RequestStats
    pipelines: Mapping[str, Pipeline]
    clock: Callable[[], float]
    traced: Callable[[RequestLife], None] = lambda life: None
    _open: dict[int, RequestLife] = field(init=False, default_factory=dict)
    _elsewhere: set[int] = field(init=False, default_factory=set)  # at the plan's pipelines now

    def arrived(self, request: int, *, asker: str) -> None:
        origin = Origin(owner=asker, context=TRACE.get())
        self._open[request] = RequestLife(arrived_at=self.clock(), origin=origin)

    def sent(self, request: int, instance: str) -> None:
        life = self._open[request]
        if instance == PIPELINES:
            self._elsewhere.add(request)
            return
        self._elsewhere.discard(request)
        if not life.attempts:
            self.stats.arrived()
        life.follow(self.pipelines[instance], now=self.clock())
        self.stats.routed(life)

    def produced(self, request: int, tokens: int) -> None:
        if request not in self._elsewhere:
            for _ in range(tokens):
                self.stats.token(self._open[request], now_s=self.clock())

    def answered(self, request: int, usage: tuple[int, int] | None) -> None:
        life = self._open[request]
        if request in self._elsewhere:
            return
        life.outcome = "stop"  # why it stopped is not read
        if usage is not None:
            life.prompt_tokens, output = usage
            life.unseen_tokens = max(0, output - len(life.token_times))
            self.stats.read_late(life)
        self.stats.finished(life, now_s=self.clock())

    def gone(self, request: int, *, failed: bool) -> None:
        life = self._open.pop(request)
        if request in self._elsewhere:
            self._elsewhere.discard(request)
            return
        if failed:
            if not life.attempts:
                self.stats.arrived()
            self.stats.failed()
            life.outcome = life.outcome if life.outcome == "stop" else "failed"
        if life.attempts or failed:
            self.stats.came_to(life.outcome)
        self.traced(life)
