"""The instances of one plan, and its pipelines beside them, behind a proxy of the front.

What instances answer is counted as pipelines' requests are. What went to the plan's own pipelines
is left out: the dispatcher counts that.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from planner.domain.pipeline import Pipeline, PipelineStage
from planner.latency_model import LatencyModel
from planner.routers.answer_length import QuantileLength
from planner.routers.instance_choice import make_instance_router
from planner.routers.load_aware import InstanceSpeed
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.local_pipelines import LocalPipelines
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.request_stats import RequestStats
from runtime.front.answer import Proxy, Waits
from runtime.front.backend import InstanceBackend
from runtime.front.balance import Balance
from runtime.front.ledger import Ledger
from runtime.front.target import InstanceTarget, Target
from runtime.instances.health import Patience
from runtime.instances.instance import Instance, Probed
from runtime.protocol.control import NodeTraffic, ServingPlan
from runtime.protocol.instance_orders import MOST_SAID, PIPELINES, InstanceTraffic, ServedInstance
from runtime.protocol.instances import EngineTimes
from runtime.protocol.trace_context import TRACE

_QUANTILE = 0.6
_RATE_WINDOW_S = 10.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """What all groups of a coordinator share.

    `dispatcher` knows what is paused and drained; `pipelines` are its own. An instance has failed
    that gave no token for `token_timeout_s`. `clock` is the dispatcher's.
    """

    dispatcher: Dispatcher
    http: httpx.AsyncClient
    token_timeout_s: float
    pipelines: LocalPipelines
    clock: Callable[[], float] = time.monotonic


class InstanceGroup(InstanceBackend):
    """Owns the instances of one plan; `InstanceService` makes and closes it."""

    def __init__(self, plan: ServingPlan, around: SharedParts) -> None:
        """`plan` has instances, or will have."""
        self.plan = plan
        self._around = around
        self._served = {one.name: one for one in plan.instances}
        instances: dict[str, Instance] = {}
        targets: dict[str, Target] = {}
        for name, one in self._served.items():
            targets[name] = target = InstanceTarget(around.http, one)
            instances[name] = self._watched(name, target, partial(self._is_shut, one.node))
        if plan.placement.layers:
            # they know by themselves whether to pause, and what to avoid
            instances[PIPELINES] = self._watched(PIPELINES, around.pipelines, lambda: False)
            targets[PIPELINES] = around.pipelines
        balance = Balance(
            instances,
            router=make_instance_router(
                "load_aware", speeds=self._speeds(), weights={}, theta=plan.theta
            ),
            clock=around.clock,
            most_requests={one.name: one.most_requests for one in plan.instances},
        )
        proxy = Proxy(
            model_name=plan.model_name,
            targets=targets,
            balance=balance,
            lengths=QuantileLength(
                first_tokens=round(max(1, plan.workload.mean_output_tokens)), quantile=_QUANTILE
            ),
            waits=Waits(token_s=around.token_timeout_s),
            ledger=InstanceLedger(
                stats=around.dispatcher.stats,
                pipelines=pipelines_of(plan),
                clock=around.clock,
                traced=partial(around.dispatcher.tracer.ended_at_instances, plan=plan),
            ),
            clock=around.clock,
        )
        super().__init__(proxy, instances)
        if around.dispatcher.plans.is_closed:
            balance.close()
        self._told: dict[str, deque[tuple[float, int]]] = {}  # when, and tokens until then

    @property
    def generation(self) -> int:
        return self.plan.generation

    @property
    def is_up(self) -> bool:
        """Whether every instance of the plan is known and open, and its pipelines."""
        is_known = len(self._served) >= self.plan.instances_total
        return is_known and len(self.balance.open_instances()) == len(self.instances)

    @property
    def is_open(self) -> bool:
        """Whether a request would be answered now."""
        return bool(self.balance.open_instances())

    @property
    def is_paused(self) -> bool:
        """Whether new requests wait."""
        return self._around.dispatcher.is_paused

    def missing_nodes(self) -> tuple[str, ...]:
        """Nodes of instances that are not open."""
        open_ones = self.balance.open_instances()
        return tuple(
            sorted({one.node for name, one in self._served.items() if name not in open_ones})
        )

    def health(self, http: Request) -> Response:
        """200 while requests are answered or wait for the end of a pause, else 503."""
        status = "ok" if self.is_open else "waiting for instances"
        if self.balance.is_closed:
            status = "stopping"
        elif self.is_paused:
            status = "paused"
        body = {
            "status": status,
            "generation": self.generation,
            "instances_open": len(self.balance.open_instances()),
            "instances_total": self.plan.instances_total,
            "requests_running": self.balance.under_way,
            "requests_waiting": self.balance.waiting,
        }
        return JSONResponse(body, status_code=200 if status in ("ok", "paused") else 503)

    def requests_at(self, node: str) -> int:
        """Those that instances of that node have from here."""
        return sum(
            self.balance.under_way_at(name)
            for name, one in self._served.items()
            if one.node == node
        )

    def node_traffic(self) -> dict[str, NodeTraffic]:
        """Traffic of each node: the sum over its instances."""
        nodes: dict[str, NodeTraffic] = {}
        layers, counted = self.plan.num_layers, self._around.dispatcher.stats.node_tokens_total
        open_ones = self.balance.open_instances()
        for name, one in self._served.items():
            load, before = self.instances[name].load, nodes.get(one.node)
            # what it says itself, else what was planned
            room = (load.kv_room_tokens or one.kv_room_tokens) * layers
            nodes[one.node] = NodeTraffic(
                kv_estimate_token_layers=(load.kv_usage or 0.0) * room
                + (before.kv_estimate_token_layers if before else 0.0),
                kv_capacity_token_layers=room
                + (before.kv_capacity_token_layers if before else 0.0),
                tokens_total=counted[one.node],
                ready=name in open_ones or bool(before and before.ready),
            )
        return nodes

    def _tokens_per_s(self, name: str) -> float:
        """Output over the last seconds that were told of."""
        now_s, total = self._around.clock(), self.balance.output_tokens[name]
        told = self._told.setdefault(name, deque())
        while told and told[0][0] < now_s - _RATE_WINDOW_S:
            told.popleft()
        told.append((now_s, total))
        since_s, before = told[0]
        return (total - before) / (now_s - since_s) if now_s > since_s else 0.0

    def traffic(self) -> dict[str, InstanceTraffic]:
        """What is told of each instance, the pipelines among them."""
        open_ones = self.balance.open_instances()
        told = {}
        for name, instance in self.instances.items():
            trouble, load, state = self.balance.trouble_of(name), instance.load, instance.state
            served = self._served.get(name)
            reason = "" if trouble is None else trouble.reason
            told[name] = InstanceTraffic(
                node="" if served is None else served.node,
                condition=state.condition,
                open=name in open_ones,
                message=(state.message or reason or load.complaint)[:MOST_SAID],
                requests=self.balance.under_way_at(name),
                waiting=load.waiting,
                kv_usage=load.kv_usage,
                answered_total=self.balance.answered[name],
                failed_total=self.balance.failures[name],
                output_tokens_total=self.balance.output_tokens[name],
                output_tokens_per_s=self._tokens_per_s(name),
            )
        return told

    def _is_shut(self, node: str) -> bool:
        """Whether no new request may go to instances of that node."""
        return self.is_paused or node in self._around.dispatcher.draining.wished

    def _watched(self, name: str, probed: Probed, is_shut: Callable[[], bool]) -> Instance:
        return Instance(
            name,
            probed=probed,
            clock=self._around.clock,
            patience=Patience(),
            is_shut=is_shut,
        )

    def _speeds(self) -> dict[str, InstanceSpeed]:
        speeds = {name: _speed(one) for name, one in self._served.items()}
        if self.plan.placement.layers:
            speeds[PIPELINES] = pipelines_speed(self.plan)
        return speeds


def pipelines_of(plan: ServingPlan) -> Mapping[str, Pipeline]:
    """An instance's node as a pipeline of one stage, for the books."""
    return {
        one.name: Pipeline(stages=(PipelineStage(node=one.node, first=0, end=plan.num_layers),))
        for one in plan.instances
    }


def pipelines_speed(plan: ServingPlan) -> InstanceSpeed:
    """The pipelines as one instance that takes a request as long as its output tokens take at the
    rate that the plan forecasts of them; its prompt is in that rate."""
    latency = None
    if plan.pipelines_tokens_per_s:
        times = EngineTimes(prefill=(0, 0, 0, 0), decode=(0, 1 / plan.pipelines_tokens_per_s, 0, 0))
        latency = times.latency()
    return InstanceSpeed(kv_room_tokens=plan.pipelines_room_tokens, latency=latency)


def _speed(one: ServedInstance) -> InstanceSpeed:
    return InstanceSpeed(
        kv_room_tokens=one.kv_room_tokens, latency=_latency(one), most_requests=one.most_requests
    )


def _latency(one: ServedInstance) -> LatencyModel | None:
    if one.prefill is None or one.decode is None:
        return None
    return EngineTimes(prefill=one.prefill, decode=one.decode).latency()
