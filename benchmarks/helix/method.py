"""What is compared: a placement with its router, weights and policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.helix.artifact_routers import ArtifactRouter
from benchmarks.helix.instance import Instance, Pipeline, with_room_for
from benchmarks.helix.weights import balanced_weights, with_component_shares
from benchmarks.simulator.published_flow import published_weights, with_shared_cards
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
from planner.max_flow import max_flow
from planner.routers.choice import RouterName

Weights = Mapping[str, Mapping[str, float]]
_AMPLE_TOKEN_LAYERS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Everything that a simulation needs but the demand.

    `requests` is the concurrency that the artifact sets for a baseline by hand, offline; None for
    methods that are limited by KV room. `artifact_router` stands in for `router` as published.
    """

    name: str
    problem: Problem
    placement: Placement
    weights: Weights
    router: RouterName
    policy: ServingPolicy
    partial_inference: bool = False
    requests: int | None = None
    artifact_router: ArtifactRouter | None = None


def helix(instance: Instance, placement: str, *, name: str, card_bytes_per_s: float) -> Method:
    """The published system: its router and weights on a published placement."""
    partial = placement == "petals"
    placed = instance.placements[placement]
    weights = published_weights(
        instance.problem, placed, partial_inference=partial, card_bytes_per_s=card_bytes_per_s
    )
    return Method(
        name=name,
        problem=with_shared_cards(instance.problem, weights, card_bytes_per_s=card_bytes_per_s),
        placement=placed,
        weights=weights,
        router="published",
        policy=PUBLISHED_POLICY,
        partial_inference=partial,
    )


def by_router(
    instance: Instance, placement: str, *, name: str, router: RouterName, requests: int | None
) -> Method:
    """A published placement under a router that takes any hop, flow or none."""
    placed = instance.placements[placement]
    return Method(
        name=name,
        problem=instance.problem,
        placement=placed,
        weights=all_hops(instance.problem, placed),
        router=router,
        policy=PUBLISHED_POLICY,
        requests=requests,
    )


def separate(
    instance: Instance, pipelines: Sequence[Pipeline], *, name: str, by_online_share: bool
) -> Method:
    """Separate pipelines as one method; with KV room as listed, the same for every instance.

    What is offered is divided among them by the artifact's online shares, or by their flow.
    """
    problem = with_room_for(instance.problem, pipelines)
    placement = Placement(
        layers={node: held for each in pipelines for node, held in each.placement.layers.items()},
        components=tuple(frozenset(each.placement.layers) for each in pipelines),
    )
    weights = balanced_weights(problem, placement, partial_inference=False)
    if by_online_share:
        shares = [each.online_share for each in pipelines]
        weights = with_component_shares(weights, placement, shares)
    return Method(
        name=name,
        problem=_without_kv_limit(problem) if by_online_share else problem,
        placement=placement,
        weights=weights,
        router="iwrr",
        policy=PUBLISHED_POLICY,
    )


def alone(instance: Instance, pipeline: Pipeline) -> Method:
    """One separate pipeline at the concurrency that the artifact sets for it."""
    problem = _without_kv_limit(with_room_for(instance.problem, [pipeline]))
    return Method(
        name="+".join(pipeline.kv_token_layers),
        problem=problem,
        placement=pipeline.placement,
        weights=balanced_weights(problem, pipeline.placement, partial_inference=False),
        router="iwrr",
        policy=PUBLISHED_POLICY,
        requests=pipeline.requests,
    )


def ours(
    instance: Instance, placement: Placement, *, name: str, policy: ServingPolicy, partial: bool
) -> Method:
    """A plan of ours: balanced weights, the paper's router."""
    return Method(
        name=name,
        problem=instance.problem,
        placement=placement,
        weights=balanced_weights(instance.problem, placement, partial_inference=partial),
        router="iwrr",
        policy=policy,
        partial_inference=partial,
    )


def under_runtime_policy(method: Method, instance: Instance) -> Method:
    """The same placement in our runtime; the published router becomes ours, balanced."""
    changed = replace(method, policy=RUNTIME_POLICY, requests=None)
    if method.router != "published":
        return changed
    return replace(
        changed,
        problem=instance.problem,
        router="iwrr",
        weights=balanced_weights(
            instance.problem, method.placement, partial_inference=method.partial_inference
        ),
    )


def all_hops(problem: Problem, placement: Placement) -> Weights:
    """Every connection of the placement's flow graph, also those without flow."""
    hops: dict[str, dict[str, float]] = {}
    for edge in max_flow(problem, placement, partial_inference=False).edges:
        hops.setdefault(edge.source, {})[edge.target] = edge.flow_tokens_per_s
    return hops


def _without_kv_limit(problem: Problem) -> Problem:
    """The artifact does not look at KV room when it routes for baselines."""
    profiles = {
        name: replace(
            profile,
            kv_capacity_token_layers=(_AMPLE_TOKEN_LAYERS,) * len(profile.kv_capacity_token_layers),
        )
        for name, profile in problem.compute_profiles.items()
    }
    return replace(problem, compute_profiles=profiles)
