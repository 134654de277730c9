"""What a generation tells the processes, put together from a plan and the inventory."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helixweb.deployment.models import Deployment
from helixweb.deployment.services.instance_orders import (
    instance_orders,
    pipelines_room_tokens,
)
from helixweb.inventory.models import Coordinator, Node
from helixweb.planning.expected import pipelines_tokens_per_s
from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import LayerTimes
from planner.domain.placement import LayerRange
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.serialization import plan_from_dict, problem_from_dict
from planner.timing import derived_layer_times
from runtime.protocol.control import PeerAddress, ServingPlan, StageAssignment
from runtime.protocol.engines import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """`serving_plan` for coordinators, which knows no address of an instance yet, an assignment for
    each node of the placement, and `instances` for those that run them.

    The assignments are without their peers, which `with_peers` adds: a thousand lists of a thousand
    peers are a hundred megabytes.
    """

    serving_plan: ServingPlan
    assignments: Mapping[str, StageAssignment]
    coordinator_peers: tuple[PeerAddress, ...]
    instances: Mapping[str, list[dict[str, Any]]]

    def instances_of(self, name: str) -> list[dict[str, Any]]:
        """Those of a node that runs these instead of a stage."""
        return self.instances.get(name, [])


def make_orders(
    deployment: Deployment, *, nodes: Mapping[str, Node], coordinators: Iterable[Coordinator]
) -> Orders:
    """Orders of the deployment's generation; `nodes` has every node of the placement."""
    plan = plan_from_dict(deployment.plan.document)
    problem = problem_from_dict(deployment.plan.problem)
    times_of = _layer_times(problem)
    used = {name: nodes[name] for name in sorted(plan.placement.layers)}
    instances = instance_orders(deployment, plan)
    stages = {name: held for name, held in plan.placement.layers.items() if name not in instances}
    node_peers = {name: _peer(name, node) for name, node in used.items() if name in stages}
    serving_plan = ServingPlan(
        deployment_id=deployment.pk,
        generation=deployment.generation,
        model_name=deployment.model_name,
        checkpoint=deployment.stage_checkpoint,
        num_layers=plan.num_layers,
        partial_inference=plan.partial_inference,
        placement=plan.placement.without(plan.placement.layers.keys() - stages.keys()),
        routing_weights=weights_among(stages, plan.routing_weights),
        workload=problem.workload,
        max_context_tokens=deployment.max_context_tokens,
        page_tokens=deployment.page_tokens,
        kv_high_water=deployment.kv_high_water,
        max_queued_requests=deployment.max_queued_requests,
        emulated=any(node.is_emulated for node in used.values()),
        instances_total=sum(map(len, instances.values())),
        theta=deployment.theta,
        pipelines_tokens_per_s=pipelines_tokens_per_s(plan) if instances else None,
        **(
            {"pipelines_room_tokens": pipelines_room_tokens(plan, problem)}
            if instances and stages
            else {}
        ),
        peers=tuple(node_peers.values()),
    )
    assignments = {
        name: StageAssignment(
            deployment_id=deployment.pk,
            generation=deployment.generation,
            model_name=deployment.model_name,
            checkpoint=deployment.stage_checkpoint,
            first=plan.placement.layers[name].first,
            end=plan.placement.layers[name].end,
            num_layers=plan.num_layers,
            page_tokens=deployment.page_tokens,
            max_batch_tokens=deployment.max_batch_tokens,
            max_context_tokens=deployment.max_context_tokens,
            tensor_parallel=deployment.options.ranks_of(name),
            engine=Engine.AUTO if used[name].is_emulated else deployment.options.engine_of(name),
            layer_times=times_of[problem.profile_of(name).name],
            reserve_bytes=_reserve_bytes(problem.profile_of(name)),
            peers=(),
        )
        for name in used
    }
    return Orders(
        serving_plan=serving_plan,
        assignments=assignments,
        coordinator_peers=tuple(_peer(row.peer, row) for row in coordinators),
        instances=instances,
    )


def weights_among(
    stages: Mapping[str, LayerRange], weights: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Without those of nodes that run instances; none where there are no stages."""
    ends = {SOURCE, SINK, *stages}
    return {
        source: {target: weight for target, weight in targets.items() if target in ends}
        for source, targets in weights.items()
        if source in ends and stages
    }


def _layer_times(problem: Problem) -> dict[str, LayerTimes | None]:
    """Those of every profile, measured or derived; None of one that says nothing about speed."""
    found: dict[str, LayerTimes | None] = {}
    for name, profile in problem.compute_profiles.items():
        try:
            found[name] = profile.layer_times or derived_layer_times(problem, profile)
        except InvalidProblem:
            found[name] = None
    return found


def _reserve_bytes(profile: ComputeProfile) -> int:
    return 0 if profile.memory is None else math.ceil(profile.memory.reserve_bytes)


def with_peers(
    assignment: StageAssignment,
    *,
    name: str,
    node_peers: Iterable[PeerAddress],
    coordinator_peers: Iterable[PeerAddress],
) -> StageAssignment:
    """The assignment of node `name` as its agent gets it: its peers are the others."""
    others = [peer for peer in node_peers if peer.name != name]
    return assignment.model_copy(update={"peers": (*others, *coordinator_peers)})


def _peer(name: str, process: Node | Coordinator) -> PeerAddress:
    return PeerAddress(
        name=name, endpoint=process.data_endpoint, public_key=process.data_public_key
    )
