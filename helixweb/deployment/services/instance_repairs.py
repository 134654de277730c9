"""Replaces a plan with whole-model instances when a node is lost or joins.

A failed instance gets no more requests at once, and its agent restarts it; this is about lost
nodes. Plans are compared by their predicted output tokens/s, as they were computed, not by flow.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from helixweb.deployment.backends import is_url
from helixweb.deployment.models import Deployment
from helixweb.deployment.options import DeployOptions
from helixweb.planning.expected import pipelines_tokens_per_s
from helixweb.planning.models import Plan
from helixweb.planning.options import DEFAULTS, options_from_json
from helixweb.planning.stored import running_options, stored_plan, stored_problem
from planner import Plan as DomainPlan
from planner import (
    PlanMethod,
    PlannerError,
    PlanOptions,
    instance_nodes,
    moved_layers,
    unmoved_score,
)


def has_instances(plan: Plan) -> bool:
    """Whether a whole-model instance is part of it."""
    return bool(stored_plan(plan).instances)


def started_by_agents(deployment: Deployment) -> frozenset[str]:
    """Nodes whose agents start instances, and restart them when they fail."""
    nodes = instance_nodes(stored_plan(deployment.plan).instances)
    return nodes - answered_by_urls(deployment)


def answered_by_urls(deployment: Deployment) -> frozenset[str]:
    """Nodes replaced by a server at a URL, which answers even if their agents are lost."""
    backends = deployment.backend_by_node
    return frozenset(name for name, backend in backends.items() if is_url(backend))


def search_options(plan: Plan) -> PlanOptions:
    """Options of a search for a replacement of the plan: those of the plan's own search."""
    stored = stored_plan(plan)
    running = instance_nodes(stored.instances)
    if not running:
        return running_options(plan)
    if plan.run is not None:
        return options_from_json(plan.run.options)
    is_mixed = len(running) < len(stored.placement.layers)
    method: PlanMethod = "mixed" if is_mixed else "instances"
    return replace(DEFAULTS, method=method, objective="decode")


def answer_of(before: Plan, after: Plan, *, lost: Collection[str]) -> dict[str, float]:
    """Columns of a repair: what `after` brings where `before` has lost these nodes."""
    old, new = stored_plan(before), stored_plan(after)
    moved = moved_layers(old.placement.without(lost), new.placement)
    left = _left_of_instances(old, lost) + _left_of_pipelines(before, old, lost)
    return {
        "unmoved_tokens_per_s": left,
        "flow_tokens_per_s": _left_of_instances(new, ()) + _pipelines_rate(new),
        "moved_bytes": moved * stored_problem(after).model.bytes_per_layer,
    }


def options_for(deployment: Deployment, plan: Plan) -> DeployOptions:
    """Options of the deployment that `plan` replaces, without backends of nodes that no longer run
    an instance, and without engines of nodes that run no stage."""
    options, stored = deployment.options, stored_plan(plan)
    running = instance_nodes(stored.instances)
    staged = stored.placement.layers.keys() - running
    return replace(
        options,
        backend_by_node=_only(options.backend_by_node, running),
        engine_by_node=_only(options.engine_by_node, staged),
    )


def _only(by_node: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: word for name, word in by_node.items() if name in names}


def _left_of_instances(plan: DomainPlan, lost: Collection[str]) -> float:
    return sum(one.output_tokens_per_s for one in plan.instances if one.node not in lost)


def _pipelines_rate(plan: DomainPlan) -> float:
    if plan.instances:
        return pipelines_tokens_per_s(plan) or 0.0
    return 0.0 if plan.forecast is None else plan.forecast.value


def _left_of_pipelines(row: Plan, plan: DomainPlan, lost: Collection[str]) -> float:
    """The pipelines' predicted tokens/s, scaled by the share of their value that is left."""
    rate, running = _pipelines_rate(plan), instance_nodes(plan.instances)
    if rate == 0.0 or not set(lost) & (plan.placement.layers.keys() - running):
        return rate
    problem, stages = stored_problem(row), plan.placement.without(running)
    options = replace(search_options(row), method="pipelines")
    rules = replace(options.rules, excluded_nodes=options.rules.excluded_nodes | running)
    try:
        whole, left = (
            unmoved_score(
                problem,
                stages.without(gone),
                options=replace(
                    options, rules=replace(rules, excluded_nodes=rules.excluded_nodes | set(gone))
                ),
            ).merit[0]
            for gone in ((), lost)
        )
    except PlannerError:
        return 0.0  # without these nodes the model fits into no pipeline
    return rate * left / whole if whole > 0 else 0.0
