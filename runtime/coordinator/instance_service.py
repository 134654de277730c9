"""Which instances serve now, and how one plan's follow another's; see docs/decisions/0010."""

import asyncio

from runtime.coordinator.instance_group import InstanceGroup, SharedParts
from runtime.protocol.control import ServingPlan
from runtime.protocol.instance_orders import PIPELINES

_TICK_S = 0.5


class InstanceService:
    """Owns the instance groups of a coordinator, which calls it.

    At most one group serves; another may be `coming`, and others end their requests.
    """

    def __init__(self, around: SharedParts) -> None:
        self._around = around
        self._groups: list[InstanceGroup] = []
        self._serving: InstanceGroup | None = None
        self.coming: InstanceGroup | None = None
        self.is_awaited = False  # no instance of the plan has reported where it answers

    @property
    def serving(self) -> InstanceGroup | None:
        """Where requests go now."""
        self._take_over()
        return self._serving

    def serve(self, plan: ServingPlan | None) -> None:
        """Follow the plan; the same again changes nothing."""
        if plan is not None and not plan.instances_total:
            plan = None
        self._serving, self.coming = _of_model(self._serving, plan), _of_model(self.coming, plan)
        self.is_awaited = plan is not None and not (plan.instances or plan.placement.layers)
        if plan is None or self.is_awaited:
            return
        latest = self.coming or self._serving
        if latest is not None and _routed(latest.plan) == _routed(plan):
            return
        self.coming = InstanceGroup(plan, self._around)
        self.coming.begin()
        self._groups.append(self.coming)
        self._take_over()

    async def tick(self) -> None:
        """Forever: let go of what nothing runs under."""
        while True:
            self._take_over()
            over = [group for group in self._left if not group.balance.here]
            self._groups = [group for group in self._groups if group not in over]
            await asyncio.gather(*(group.close() for group in over))
            await asyncio.sleep(_TICK_S)

    def close(self) -> None:
        """New requests are refused from now on."""
        for group in self._groups:
            group.balance.close()

    def cut(self) -> None:
        """The process ends: clients of requests that are still here get an error."""
        self.close()
        for group in self._groups:
            group.balance.cut.set()

    async def stop(self) -> None:
        await asyncio.gather(*(group.close() for group in self._groups))

    @property
    def requests_here(self) -> int:
        """Those that are here, at any instance or waiting."""
        return sum(group.balance.here for group in self._groups)

    @property
    def requests_running(self) -> int:
        """Those that instances have."""
        return sum(
            group.balance.under_way - group.balance.under_way_at(PIPELINES)
            for group in self._groups
        )

    @property
    def requests_waiting(self) -> int:
        return sum(group.balance.waiting for group in self._groups)

    @property
    def requests_leaving(self) -> int:
        """Those of groups that get no new ones."""
        return sum(group.balance.here for group in self._left)

    @property
    def leaving_generation(self) -> int | None:
        """The latest before the one that serves, while it has requests; None: there is none."""
        serving = None if self._serving is None else self._serving.generation
        leaving = {group.generation for group in self._left if group.balance.here} - {serving}
        return max(leaving, default=None)

    def requests_at(self, node: str) -> int:
        """Those that instances of that node have."""
        return sum(group.requests_at(node) for group in self._groups)

    @property
    def _left(self) -> list[InstanceGroup]:
        """Those that get no new requests."""
        return [group for group in self._groups if group not in (self._serving, self.coming)]

    def _take_over(self) -> None:
        """What comes serves once it is up, or as soon as what serves cannot any more."""
        coming, serving = self.coming, self._serving
        if coming is None:
            return
        is_same_plan = serving is not None and serving.generation == coming.generation
        if serving is None or is_same_plan or coming.is_up or not serving.is_open:
            self._serving, self.coming = coming, None


def _of_model(group: InstanceGroup | None, plan: ServingPlan | None) -> InstanceGroup | None:
    """The group if the plan is of its model."""
    is_of_model = (
        group is not None and plan is not None and group.plan.model_name == plan.model_name
    )
    return group if is_of_model else None


def _routed(plan: ServingPlan) -> ServingPlan:
    """What a group is made of; stages' addresses and weights are no part of it."""
    return plan.model_copy(update={"peers": (), "routing_weights": {}})
