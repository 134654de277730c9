"""Why a plan cannot be deployed yet."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.deployment.backends import is_url
from helixweb.deployment.coordinators import is_online
from helixweb.deployment.options import DEFAULTS, DeployOptions
from helixweb.deployment.services.draining import draining_names
from helixweb.deployment.services.instance_orders import instance_trouble
from helixweb.inventory.engines import choice_of, takes_engines, why_text
from helixweb.inventory.models import Coordinator, LanguageModel, Node, NodeState
from helixweb.inventory.services.reachability import cut_pairs, parties
from helixweb.planning.models import Plan
from helixweb.planning.stored import stored_plan
from planner import SINK, SOURCE, instance_nodes, options_of
from planner import Plan as DomainPlan
from runtime.protocol.engines import Engine
from runtime.protocol.head_shares import why_not_shared

_ABSENT = {
    None: gettext_noop(
        "Node %(name)s is not in the cluster any more; compute a new plan without it."
    ),
    NodeState.DECLARED: gettext_noop(
        "Node %(name)s has not joined; run the join command from the cluster's page on it."
    ),
    NodeState.LOST: gettext_noop("Node %(name)s is silent; start its agent again."),
}


def find_obstacles(
    plan: Plan, *, now: datetime, options: DeployOptions = DEFAULTS
) -> tuple[str, ...]:
    """One sentence each, with its remedy; empty when the plan can be deployed."""
    return tuple(_obstacles(plan, now, options.with_engine_of_model(plan.model.engine)))


def _obstacles_to_instances(
    stored: DomainPlan, options: DeployOptions, rows: QuerySet[Node]
) -> Iterator[str]:
    for one in stored.instances:
        if wrong := instance_trouble(one):
            yield _(
                "Instance %(name)s of this plan can be run by no agent (%(wrong)s); compute the "
                "plan again, or correct its file and import it again."
            ) % {"name": repr(one.name), "wrong": wrong}
    running = instance_nodes(stored.instances)
    emulated = rows.filter(name__in=running, hardware__emulated=True)
    for name in sorted(emulated.values_list("name", flat=True)):
        if not is_url(options.backend_by_node.get(name, "")):
            yield _(
                "Node %(name)s is emulated and runs no model, so no instance either; compute a "
                "plan of pipelines, or without it."
            ) % {"name": name}


def _obstacles_between(cluster_id: int, stored: DomainPlan, *, now: datetime) -> Iterator[str]:
    """Pairs that the plan has send to each other, and of which one does not reach the other."""
    weights = stored.routing_weights
    found = parties(
        cluster_id, now=now, names=stored.placement.layers.keys() - instance_nodes(stored.instances)
    )
    coordinators = {party.name for party in found if party.is_coordinator}
    for cut in cut_pairs(found):
        targets = weights.get(cut.source, {})
        # The last stage sends every token to the first one.
        closes = SINK in targets and cut.target in weights.get(SOURCE, {})
        if closes or cut.target in targets or coordinators & {cut.source, cut.target}:
            yield cut.remedy


def _obstacles(plan: Plan, now: datetime, options: DeployOptions) -> Iterator[str]:
    model, stored = plan.model, stored_plan(plan)
    if plan.run is not None and plan.run.what_if:
        yield _(
            "This plan is for a changed copy of the cluster (%(what_if)s); make the "
            "changes, then compute a plan of the cluster itself."
        ) % {"what_if": plan.run.what_if}
    if (options.max_context_tokens or 0) > model.max_context_tokens:
        yield _(
            "Requests of %(max_context_tokens)s tokens are longer than the "
            "%(allowed)s that model %(name)s allows; choose fewer, or "
            "change the number on the model's page if its checkpoint can do more."
        ) % {
            "max_context_tokens": options.max_context_tokens,
            "allowed": model.max_context_tokens,
            "name": model.name,
        }
    if not model.checkpoint:
        yield _(
            "Model %(name)s has no checkpoint; set the path it has on the nodes on "
            "the model's page."
        ) % {"name": model.name}
    if model.num_layers != stored.num_layers:
        yield _(
            "Model %(name)s has %(num_layers)s layers now, the plan places "
            "%(placed)s; compute a new plan."
        ) % {"name": model.name, "num_layers": model.num_layers, "placed": stored.num_layers}
    rows = Node.unscoped.filter(cluster=plan.cluster_id)
    heard = rows.only("name", "joined_at", "last_seen_at")  # of a thousand nodes no more is read
    states = {node.name: node.state_at(now) for node in heard}
    for name in sorted(stored.placement.layers):
        state = states.get(name)
        if state is not NodeState.ONLINE:
            yield _(_ABSENT[state]) % {"name": name}
    for name in draining_names(plan.cluster_id):
        if name in stored.placement.layers:
            yield _(
                "Node %(name)s is being drained; take it in again on its page, or compute a plan "
                "without it."
            ) % {"name": name}
    yield from _obstacles_to_instances(stored, options, rows)
    placed, running = stored.placement.layers.keys(), instance_nodes(stored.instances)
    hardware = dict(rows.filter(name__in=placed).values_list("name", "hardware"))
    of_placed = {name: hardware.get(name) for name in placed}
    of_staged = {name: of_placed[name] for name in placed - running}
    yield from _obstacles_to_ranks(options, model=model, hardware=of_placed)
    yield from _obstacles_to_engines(options, model=model, hardware=of_staged)
    for option, counts in (
        ("tensor_parallel_by_node", placed),
        ("engine_by_node", of_staged.keys()),
        ("backend_by_node", running),
    ):
        label = _(options_of(DeployOptions)[option].spec.label)
        for name in sorted(set(getattr(options, option)) - counts):
            yield _(
                "%(label)s: node %(name)s holds no layers and runs no instance that this applies "
                "to; leave it out."
            ) % {"label": label, "name": name}
    yield from _obstacles_between(plan.cluster_id, stored, now=now)
    coordinators = Coordinator.unscoped.filter(cluster=plan.cluster_id)
    if not coordinators:
        yield _("No coordinator has joined; run its join command from the cluster's page.")
    elif not any(is_online(row, now=now) for row in coordinators):
        yield _("Coordinator %(name)s is silent; start it again.") % {"name": coordinators[0].name}


def _obstacles_to_ranks(
    options: DeployOptions, *, model: LanguageModel, hardware: Mapping[str, Any]
) -> Iterator[str]:
    """One sentence each, with its remedy.

    `hardware` is that of every node of the placement; None: not known, or of no matter since no
    ranks share its layers.
    """
    for name, known in sorted(hardware.items()):
        ranks = options.ranks_of(name)
        if ranks == 1 or not known:
            continue
        places, what = len(known["gpus"]), "GPUs"
        text = _(
            "%(ranks)s ranks need as many GPUs, node %(name)s has %(places)s "
            "%(what)s; choose at most %(places)s ranks for it."
        )
        if not places:
            places, what = known["cpu_count"], _("processors and no GPU")
            text = _(
                "%(ranks)s ranks are more than node %(name)s can run, which has "
                "%(places)s %(what)s; choose at most %(places)s ranks for it."
            )
        if ranks > places:
            yield text % {"ranks": ranks, "name": name, "places": places, "what": what}
    if model.num_heads is None or model.num_kv_heads is None:
        return
    for ranks in sorted({options.ranks_of(name) for name in hardware}):
        why = why_not_shared(heads=model.num_heads, kv_heads=model.num_kv_heads, ranks=ranks)
        if why:
            yield _("Model %(name)s: %(why)s.") % {"name": model.name, "why": why}


def _obstacles_to_engines(
    options: DeployOptions, *, model: LanguageModel, hardware: Mapping[str, Any]
) -> Iterator[str]:
    """One sentence each, with its remedy; `hardware` is that of every node with layers."""
    for name, known in sorted(hardware.items()):
        asked = options.engine_of(name)
        choice = choice_of(known, model, asked=asked)
        if choice is not None and choice.engine is None:
            yield _("Node %(name)s cannot run %(model)s: %(why)s.") % {
                "name": name,
                "model": model.name,
                "why": why_text(choice),
            }
        if not known or known.get("emulated") or asked is Engine.AUTO:
            continue
        if not takes_engines(known):
            yield _(
                "Node %(name)s is asked for the engine %(engine)s, which its agent is too old to "
                "take; update it, or choose the engine auto for the node."
            ) % {"name": name, "engine": asked.value}
