"""How this coordinator routes every plan that it serves: chosen once, when the process starts."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from planner.routers.base import LoadView, Router
from planner.routers.choice import RouterName, make_router
from planner.routers.kv_estimator import KvEstimator
from runtime.protocol.control import ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The router's name, and what it may need beside the plan."""

    name: RouterName
    rng: random.Random
    clock: Callable[[], float]

    def router_of(self, plan: ServingPlan, *, kv: KvEstimator, load: LoadView) -> Router:
        """Raises InvalidPlacement when weights and placement contradict each other."""
        return make_router(
            self.name,
            routing_weights=plan.routing_weights,
            placement=plan.placement,
            num_layers=plan.num_layers,
            partial_inference=plan.partial_inference,
            kv=kv,
            load=load,
            rng=self.rng,
        )
