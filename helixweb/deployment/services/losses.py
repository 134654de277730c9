"""Losses of a deployment: lost nodes, the outages they cause, and repairs. Reads only.

A failed instance gets no more requests at once, and its agent restarts it; plans with instances are
compared by their predicted output tokens/s, as they were computed, not by flow.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from helixweb.deployment.backends import is_url
from helixweb.deployment.coordinators import (
    is_online,
    lost_stages,
    nodes_of,
    reports_of,
    reports_on,
    told_by,
)
from helixweb.deployment.models import LOST, SERVING, Deployment, PhaseChange, Repair, Status
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.services.draining import is_let_go
from helixweb.inventory.models import NodeState
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
    leads_past,
    moved_layers,
    unmoved_score,
)
from runtime.protocol.phases import Phase


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


class Changed(NamedTuple):
    """Nodes that a deployment has lost, and nodes that it could use in addition; sorted."""

    lost: tuple[str, ...]
    added: tuple[str, ...]


def changes_of(deployment: Deployment, *, now: datetime) -> Changed:
    """Lost and additional nodes, from reports of agents and coordinators; a node that is being
    drained counts as lost.

    While stages load, coordinators hear from none of them, and additional nodes are ignored. A
    failed instance is restarted on its node.
    """
    placed = frozenset(stored_plan(deployment.plan).placement.layers)
    online = _online(deployment, now=now)
    lost = placed - online - answered_by_urls(deployment)
    if deployment.status == Status.DEPLOYING:
        return Changed(lost=tuple(sorted(lost)), added=())
    silent = placed & _not_heard(deployment, now=now)
    silent -= started_by_agents(deployment) | answered_by_urls(deployment)
    return Changed(lost=tuple(sorted(lost | silent)), added=added_to(deployment, now=now))


def added_to(deployment: Deployment, *, now: datetime) -> tuple[str, ...]:
    """Nodes that are online, and that the plan was made without; sorted."""
    counted = {node.name for node in stored_problem(deployment.plan).cluster.nodes}
    counted -= left_out(deployment.plan)
    return tuple(sorted(_online(deployment, now=now) - counted))


def _online(deployment: Deployment, *, now: datetime) -> frozenset[str]:
    """Nodes that can be used: those that are being drained are not."""
    return frozenset(
        node.name
        for node in nodes_of(deployment)
        if node.state_at(now) is NodeState.ONLINE and not hasattr(node, "drain")
    )


def left_out(plan: Plan) -> frozenset[str]:
    """Nodes that an earlier repair left out of the plan because they were unavailable."""
    if plan.run is None:
        return frozenset()
    before = list(plan.run.repair_set.all())
    return frozenset(before[0].left_out) if before else frozenset()


def _not_heard(deployment: Deployment, *, now: datetime) -> frozenset[str]:
    """Nodes whose stages are ready at no coordinator."""
    silent = [
        frozenset(name for name, traffic in report.says("nodes").items() if not traffic["ready"])
        for report in reports_on(deployment, heard_at=now)
    ]
    return frozenset.intersection(*silent) if silent else frozenset()


def is_about(row: Repair, changed: Changed) -> bool:
    return (tuple(row.lost), tuple(row.added)) == changed


def shown_repair(deployment: Deployment, *, now: datetime) -> Repair | None:
    """The newest repair that users should see: it does not wait, and is about what is still so."""
    hidden = {Repair.State.WAITING, Repair.State.OVERTAKEN}
    row = deployment.repairs.exclude(state__in=hidden).select_related("run").first()
    if row is None or not is_about(row, changes_of(deployment, now=now)):
        return None
    return row


def stops_service(
    deployment: Deployment, lost: Collection[str], *, now: datetime
) -> frozenset[str]:
    """Those of the `lost` nodes that stop all service of the deployment; empty if it is served.

    If only the agent of a node is silent, its stage may still serve: coordinators know.
    """
    plan = stored_plan(deployment.plan)
    known = lost_stages(deployment, now=now)
    gone = (known | instance_nodes(plan.instances)).intersection(lost)
    return gone if gone and not is_served(plan, without=gone) else frozenset()


def is_served(plan: DomainPlan, *, without: Collection[str]) -> bool:
    """True if a pipeline of the plan, or an instance, serves requests without these nodes."""
    running = instance_nodes(plan.instances)
    if running - set(without):
        return True
    return leads_past(running.union(without), weights=plan.routing_weights)


def losses_of(deployment: Deployment, *, now: datetime) -> list[str]:
    """One sentence for each missing process, with the remedy."""
    if deployment.status not in SERVING:
        return []
    held = {node.name: node for node in nodes_of(deployment) if not is_let_go(node)}
    placed = stored_plan(deployment.plan).placement.layers.keys() & held.keys()
    silent = {name for name in placed if held[name].state_at(now) is NodeState.LOST}
    ready = deployment.assignments.filter(
        phase=Phase.READY.value, observed_generation=deployment.generation
    )
    ended = placed & lost_stages(deployment, now=now)
    if ended:
        ended &= set(ready.values_list("node_name", flat=True))
    sentences = [
        _loss(name, has_stage=name not in ended, has_agent=name not in silent)
        for name in sorted(silent | ended)
    ]
    coordinators = told_by(deployment)
    if not coordinators:
        sentences.append(_("The coordinator was removed; let one join from the cluster's page."))
    sentences += [
        _("Coordinator %(name)s is silent; clients may get no answer. Start it again.")
        % {"name": coordinator.name}
        for coordinator in coordinators
        if not is_online(coordinator, now=now)
    ]
    return sentences


def _loss(name: str, *, has_stage: bool, has_agent: bool) -> str:
    """Words for what a node has lost."""
    if has_stage:
        said = _(
            "The agent of %(name)s is silent; its stage may serve on, but would not be "
            "started again. Start the agent."
        )
    elif has_agent:
        said = _(
            "The coordinator does not reach the stage of %(name)s. If the stage has ended, its "
            "agent starts it again."
        )
    else:
        said = _(
            "The stage of %(name)s is lost, and its agent is silent. Start the agent; it starts "
            "the stage."
        )
    return said % {"name": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Nodes that are lost, and without which no pipeline and no instance serves `deployment`.

    `repair` is what is done about it, None while nothing is. Once that is deployed, `loaded` of
    its `stages` are ready. `waiting` requests are held by the coordinators. `since` is None where
    it was not recorded.
    """

    deployment: Deployment
    lost: tuple[str, ...]
    since: datetime | None
    repair: Repair | None
    waiting: int
    stages: int = 0
    loaded: int = 0

    @property
    def is_loading(self) -> bool:
        """Whether nodes load what serves again."""
        return self.stages > 0


def outage_of(deployment: Deployment, *, now: datetime) -> Outage | None:
    """The current outage; None while requests are served, or nodes load for the first time."""
    if deployment.status not in SERVING:
        return None
    if deployment.status == Status.DEPLOYING:
        return _while_loading(deployment, now=now)
    lost = tuple(sorted(stops_service(deployment, changes_of(deployment, now=now).lost, now=now)))
    if not lost:
        return None
    repair = shown_repair(deployment, now=now)
    return Outage(
        deployment=deployment,
        lost=lost,
        since=_lost_at(deployment, lost) if repair is None else repair.noticed_at,
        repair=repair,
        waiting=_waiting(deployment, now=now),
    )


def _while_loading(deployment: Deployment, *, now: datetime) -> Outage | None:
    """The outage of a deployment that replaces one that does not serve."""
    if deployment.plan.run_id is None:
        return None
    repairs = Repair.unscoped.filter(run=deployment.plan.run_id, state=Repair.State.DEPLOYED)
    repair = repairs.filter(unmoved_tokens_per_s__lte=0).exclude(lost=[]).first()
    if repair is None:
        return None
    phases = deployment.assignments.values_list("phase", "observed_generation")
    return Outage(
        deployment=deployment,
        lost=tuple(repair.lost),
        since=repair.noticed_at,
        repair=repair,
        waiting=_waiting(deployment, now=now),
        stages=len(phases),
        loaded=sum(phase == (Phase.READY.value, deployment.generation) for phase in phases),
    )


def _lost_at(deployment: Deployment, lost: tuple[str, ...]) -> datetime | None:
    """When the last of these nodes was lost."""
    changes = PhaseChange.unscoped.filter(
        assignment__deployment=deployment, assignment__node_name__in=lost, phase=LOST
    )
    return changes.order_by("-at").values_list("at", flat=True).first()


def _waiting(deployment: Deployment, *, now: datetime) -> int:
    return sum(report.says("requests_waiting") for report in reports_of(deployment, heard_at=now))
