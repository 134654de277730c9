"""Orders of a generation to the processes, made from a plan and the inventory."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from helixweb.deployment.models import Deployment
from helixweb.deployment.services.instance_orders import instance_orders, pipelines_room_tokens
from helixweb.inventory.hub import commit_of, find_folder, is_served, read_commit
from helixweb.inventory.models import Coordinator, Node
from helixweb.planning.expected import pipelines_tokens_per_s
from planner import (
    SINK,
    SOURCE,
    ComputeProfile,
    InvalidProblem,
    LayerRange,
    LayerTimes,
    Problem,
    derived_layer_times,
)
from planner.serialization import plan_from_dict, problem_from_dict
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.hub_names import HubName, parse_hub_name
from runtime.checkpoints.metadata import CONFIG
from runtime.protocol.control import PeerAddress, ServingPlan, StageAssignment
from runtime.protocol.engines import Engine

logger = logging.getLogger(__name__)

_EVERYWHERE = ("generation", "model_name", "page_tokens", "max_context_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """`columns` of the deployment, and those of its assignment of each node of the placement.

    The serving plan knows no address of an instance yet. The assignments are without their peers,
    which `with_peers` adds: a thousand lists of a thousand peers are a hundred megabytes.
    """

    columns: Mapping[str, Any]
    assignments: Mapping[str, Mapping[str, Any]]

    def are_those_of(self, deployment: Deployment) -> bool:
        """True if the deployment's rows say the same."""
        return _has(deployment, self.columns) and all(
            _has(row, self.assignments[row.node_name]) for row in deployment.assignments.all()
        )


def _has(row: object, columns: Mapping[str, Any]) -> bool:
    return all(getattr(row, name) == value for name, value in columns.items())


def make_orders(
    deployment: Deployment, *, nodes: Mapping[str, Node], coordinators: Iterable[Coordinator]
) -> Orders:
    """Orders of the deployment's generation; `nodes` has every node of the placement."""
    plan = plan_from_dict(deployment.plan.document)
    problem = problem_from_dict(deployment.plan.problem)
    times_of = _layer_times(problem)
    placed = dict(sorted(plan.placement.layers.items()))
    instances = instance_orders(deployment, plan)
    stages = {name: held for name, held in placed.items() if name not in instances}
    everywhere: dict[str, Any] = {
        "deployment_id": deployment.pk,
        "checkpoint": deployment.stage_checkpoint,
        "num_layers": plan.num_layers,
        **{name: getattr(deployment, name) for name in _EVERYWHERE},
    }
    emulated = any(nodes[name].is_emulated for name in placed)
    serving_plan = ServingPlan(
        **everywhere,
        partial_inference=plan.partial_inference,
        placement=plan.placement.without(placed.keys() - stages.keys()),
        routing_weights=weights_among(stages, plan.routing_weights),
        workload=problem.workload,
        kv_high_water=deployment.kv_high_water,
        max_queued_requests=deployment.max_queued_requests,
        emulated=emulated,
        instances_total=sum(map(len, instances.values())),
        theta=deployment.theta,
        pipelines_tokens_per_s=pipelines_tokens_per_s(plan) if instances else None,
        **(
            {"pipelines_room_tokens": pipelines_room_tokens(plan, problem)}
            if instances and stages
            else {}
        ),
        peers=tuple(_peer(name, nodes[name]) for name in stages),
    )
    assignments = {
        name: StageAssignment(
            **everywhere,
            first=held.first,
            end=held.end,
            max_batch_tokens=deployment.max_batch_tokens,
            tensor_parallel=deployment.options.ranks_of(name),
            engine=Engine.AUTO if nodes[name].is_emulated else deployment.options.engine_of(name),
            layer_times=times_of[problem.profile_of(name).name],
            reserve_bytes=_reserve_bytes(problem.profile_of(name)),
            peers=(),
        )
        for name, held in placed.items()
    }
    peers = [_peer(row.peer, row) for row in coordinators]
    return Orders(
        columns={
            "serving_plan": serving_plan.model_dump(mode="json"),
            "coordinator_peers": [peer.model_dump(mode="json") for peer in peers],
            "emulated": emulated,
        },
        assignments={
            name: {
                "node_id": nodes[name].pk,
                "desired": assignment.model_dump(mode="json"),
                "instances": instances.get(name, []),
            }
            for name, assignment in assignments.items()
        },
    )


def weights_among(
    stages: Mapping[str, LayerRange], weights: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Weights without nodes that run instances; empty without stages."""
    ends = {SOURCE, SINK, *stages}
    return {
        source: {target: weight for target, weight in targets.items() if target in ends}
        for source, targets in weights.items()
        if source in ends and stages
    }


def _layer_times(problem: Problem) -> dict[str, LayerTimes | None]:
    """Layer times of every profile, measured or derived; None for one without any speed."""
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


def pin_checkpoint(checkpoint: str) -> str:
    """`owner/model@COMMIT` for a name on a hub: the commit of the source that nodes ask first.

    Empty if there is nothing to pin (a path, or a name with a commit), and if no commit can be
    found now, which is logged.
    """
    name = parse_hub_name(checkpoint)
    if name is None or name.is_pinned:
        return ""
    try:
        commit = _site_commit(name) or read_commit(name)
    except (CheckpointError, OSError) as error:
        logger.warning("%s is deployed without a commit: %s", checkpoint, error)
        return ""
    return str(replace(name, revision=commit))


def may_mix_versions(checkpoint: str) -> bool:
    """True for a name on a hub without a commit, which each node looks up by itself."""
    name = parse_hub_name(checkpoint)
    return name is not None and not name.is_pinned


def _site_commit(name: HubName) -> str | None:
    """Commit of the site's own copy; None without one. Ignores branch and tag. Raises OSError."""
    folder = find_folder(name.repository) if name.is_newest else None
    return commit_of(folder) if folder is not None and is_served(folder / CONFIG) else None
