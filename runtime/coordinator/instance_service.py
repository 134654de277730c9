"""Which instances serve now, and how one plan's follow another's; see docs/decisions/0010."""

import asyncio

from runtime.coordinator.instance_group import InstanceGroup, SharedParts
from runtime.protocol.control import (
    CoordinatorDesired,
    CoordinatorReport,
    DrainProgress,
    NodeTraffic,
    ServingPlan,
)

_TICK_S = 0.5
_NONE_KNOWN = "no instance has told where it answers yet"


class InstanceService:
    """Owns the instance groups of a coordinator, which calls it.

    At most one group serves; another may be coming, and others end their requests.
    """

    def __init__(self, around: SharedParts) -> None:
        self._around = around
        self._serving: InstanceGroup | None = None
        self._coming: InstanceGroup | None = None
        self._leaving: list[InstanceGroup] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._awaited: ServingPlan | None = None  # no instance of it has told where it answers
        self.shut_nodes: frozenset[str] = frozenset()
        self.is_paused = False

    @property
    def serving(self) -> InstanceGroup | None:
        """Where requests go now."""
        self._take_over()
        return self._serving

    def serve(self, desired: CoordinatorDesired) -> None:
        """Follow what is desired; the same again changes nothing."""
        self.shut_nodes = frozenset(desired.draining)
        self.is_paused = desired.paused
        plan = desired.plan
        if plan is None or not plan.instances_total:
            self._retire(self._coming)
            self._retire(self._serving)
            self._coming = self._serving = self._awaited = None
            return
        self._awaited = plan if not (plan.instances or plan.placement.layers) else None
        if self._awaited is not None:
            self._forget_other_models(plan)
            return
        latest = self._coming or self._serving
        if latest is not None and _routed(latest.plan) == _routed(plan):
            return
        group = InstanceGroup(plan, self._around, is_shut=self._is_shut)
        group.begin()
        self._retire(self._coming)
        self._coming = group
        serves = None if self._serving is None else self._serving.plan
        if serves is not None and not _may_wait(serves, plan):
            self._switch()
        self._take_over()

    def _is_shut(self, node: str | None) -> bool:
        return self.is_paused or node in self.shut_nodes

    async def tick(self) -> None:
        """Forever: let go of what nothing runs under."""
        while True:
            self._take_over()
            for group in self._leaving:
                if group.balance.here == 0:
                    self._close(group)
            self._leaving = [group for group in self._leaving if group.balance.here]
            for group in self._present:
                group.balance.observe()
            await asyncio.sleep(_TICK_S)

    def close(self) -> None:
        """New requests are refused from now on."""
        self._is_closed = True
        for group in self._present:
            group.balance.close()

    def cut(self) -> None:
        """The process ends: who is still here is told."""
        for group in self._present:
            group.balance.close()
            group.balance.cut.set()

    async def stop(self) -> None:
        await asyncio.gather(*(group.close() for group in self._present))

    @property
    def requests_here(self) -> int:
        """Those that are here, at any instance or waiting."""
        return sum(group.balance.here for group in self._present)

    def reported(self, report: CoordinatorReport) -> CoordinatorReport:
        """The report with what instances have in it; what it says of the pipelines stays."""
        group = self.serving
        report = self._with_leaving(report)
        if group is None:
            if self._awaited is None:
                return report
            return report.model_copy(update={"message": _NONE_KNOWN})
        coming = self._coming
        running = sum(each.balance.under_way for each in self._present)
        is_open = group.is_open
        return report.model_copy(
            update={
                "serving": is_open,
                "message": _message(group, report) if is_open else _why_closed(group),
                "coming_generation": coming.plan.generation if coming else report.coming_generation,
                "coming_missing": coming.missing if coming else report.coming_missing,
                "draining": {
                    **report.draining,
                    **{
                        node: DrainProgress(requests=self._requests_at(node), needed=False)
                        for node in group.nodes & self.shut_nodes
                    },
                },
                "paused": self.is_paused,
                "requests_running": max(running, report.requests_running),
                "requests_waiting": report.requests_waiting + max(0, self.requests_here - running),
                "nodes": {**report.nodes, **self._nodes(group)},
                "instances": group.traffic(),
            }
        )

    @property
    def _present(self) -> list[InstanceGroup]:
        return [each for each in (self._coming, self._serving, *self._leaving) if each is not None]

    def _with_leaving(self, report: CoordinatorReport) -> CoordinatorReport:
        """The report with what still runs at instances that no new request goes to."""
        if not self._leaving:
            return report
        left = frozenset().union(*(each.nodes for each in self._leaving)) & self.shut_nodes
        draining = {
            node: DrainProgress(
                requests=before.requests + self._requests_at(node), needed=before.needed
            )
            for node, before in report.draining.items()
            if node in left
        }
        return report.model_copy(
            update={
                "leaving_generation": self._leaving_generation(report),
                "leaving_requests": report.leaving_requests
                + sum(each.balance.here for each in self._leaving),
                "draining": {**report.draining, **draining},
            }
        )

    def _requests_at(self, node: str) -> int:
        return sum(each.requests_at(node) for each in self._present)

    def _leaving_generation(self, report: CoordinatorReport) -> int | None:
        left = [each.plan.generation for each in self._leaving]
        serving = None if self._serving is None else self._serving.plan.generation
        older = [generation for generation in left if generation != serving]
        return max(older, default=report.leaving_generation)

    def _nodes(self, group: InstanceGroup) -> dict[str, NodeTraffic]:
        nodes: dict[str, NodeTraffic] = {}
        layers, counted = group.plan.num_layers, self._around.stats.node_tokens_total
        for one in group.plan.instances:
            room = group.room_tokens(one.name) * layers
            usage = group.instances[one.name].load.kv_usage or 0.0
            before = nodes.get(one.node)
            is_open = one.name in group.balance.open_instances()
            nodes[one.node] = NodeTraffic(
                kv_estimate_token_layers=usage * room
                + (before.kv_estimate_token_layers if before else 0.0),
                kv_capacity_token_layers=room
                + (before.kv_capacity_token_layers if before else 0.0),
                tokens_total=counted[one.node],
                ready=is_open or bool(before and before.ready),
            )
        return nodes

    def _take_over(self) -> None:
        """What comes serves once it is up, or as soon as what serves cannot any more."""
        coming, serving = self._coming, self._serving
        if coming is None:
            return
        if serving is None or coming.is_up or not serving.is_open:
            self._switch()

    def _switch(self) -> None:
        self._retire(self._serving)
        self._serving, self._coming = self._coming, None
        if self._is_closed and self._serving is not None:
            self._serving.balance.close()

    def _forget_other_models(self, plan: ServingPlan) -> None:
        for group in (self._coming, self._serving):
            if group is not None and group.plan.model_name != plan.model_name:
                self._retire(group)
                self._coming = self._coming if group is not self._coming else None
                self._serving = self._serving if group is not self._serving else None

    def _retire(self, group: InstanceGroup | None) -> None:
        if group is None:
            return
        if group.balance.here:
            self._leaving.append(group)
        else:
            self._close(group)

    def _close(self, group: InstanceGroup) -> None:
        task = asyncio.create_task(group.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _may_wait(serves: ServingPlan, coming: ServingPlan) -> bool:
    """Whether what serves may go on until what comes is up."""
    if serves.generation == coming.generation:
        return False
    return serves.model_name == coming.model_name


def _message(group: InstanceGroup, report: CoordinatorReport) -> str:
    """Of a plan without pipelines there is no news of these."""
    return report.message if group.plan.placement.layers else ""


def _why_closed(group: InstanceGroup) -> str:
    told = [f"{name}: {one.message or one.condition}" for name, one in group.traffic().items()]
    return "no instance is ready (" + "; ".join(told)[:1500] + ")"


def _routed(plan: ServingPlan) -> ServingPlan:
    """What a group is made of; stages' addresses and weights are no part of it."""
    return plan.model_copy(update={"peers": (), "routing_weights": {}})
