"""How the published simulator feeds its offline runs, for comparison with its figures."""

import math
from collections import deque

from planner.domain.placement import Placement
from planner.routers.base import Router
from planner.routers.kv_estimator import KvEstimator
from planner.simulator.admission import Admission
from planner.simulator.compiled_engine import Engine
from planner.simulator.engine import Occurrence, OccurrenceKind
from planner.workload.demand import Backlog
from planner.workload.request import Request

FIRST_REQUESTS, SPACING_S, HIGH_WATER = 20, 0.1, 0.8


class OfflineFeeder:
    """A feeder, in place of a backlog's: the first requests come `SPACING_S` apart.

    Whenever a prompt or a request is done and no layer's nodes have reserved more than `HIGH_WATER`
    of their KV room together, one more comes `SPACING_S` later. What then finds no route is lost.
    """

    def __init__(
        self,
        backlog: Backlog,
        *,
        admission: Admission,
        engine: Engine,
        router: Router,
        placement: Placement,
        kv: KvEstimator,
    ) -> None:
        self._lengths = backlog.lengths
        self._admission, self._engine = admission, engine
        self._placement, self._kv = placement, kv
        self._due = deque(SPACING_S * number for number in range(FIRST_REQUESTS))

    def due_s(self) -> float:
        return self._due[0] if self._due else math.inf

    def offer(self) -> None:
        lengths = next(self._lengths, None)
        arrival = self._due.popleft()
        if lengths is not None:
            request = Request(arrival_s=arrival, lengths=lengths)
            self._admission.try_to_admit(request, self._admission.size_of(lengths))

    def idle(self) -> bool:
        return not self._due

    def hear(self, occurrence: Occurrence, *, may_let_in: bool) -> None:
        is_prompt_done = occurrence.kind == OccurrenceKind.FIRST_TOKEN
        if (is_prompt_done or may_let_in) and self._layer_use() <= HIGH_WATER:
            self._due.append(self._engine.now + SPACING_S)

    def _layer_use(self) -> float:
        """The reserved share of the fullest layer: of its nodes' room per layer, together."""
        layers = self._placement.layers
        used, room = ([0.0] * max(held.end for held in layers.values()) for _ in range(2))
        for name, held in layers.items():
            used_share = self._kv.used_token_layers(name) / len(held)
            room_share = self._kv.capacity_token_layers(name) / len(held)
            for layer in range(held.first, held.end):
                used[layer] += used_share
                room[layer] += room_share
        return max(part / whole for part, whole in zip(used, room, strict=True) if whole > 0)
