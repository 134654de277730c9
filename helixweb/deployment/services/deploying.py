"""Put a plan to work, pause it, take it back, and follow processes that moved."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common.refusals import Conflict, Refused
from helixweb.deployment.announcing import (
    announce,
    logged_values,
    record,
    wake_cluster,
    wake_coordinators,
)
from helixweb.deployment.models import SERVING, Deployment, NodeAssignment, Repair, Status
from helixweb.deployment.options import OPTION_NAMES, DeployOptions
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.losses import added_to
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.deployment.services.orders import Orders, make_orders, pin_checkpoint
from helixweb.inventory.models import Cluster, Coordinator, Node
from helixweb.inventory.services.change_log import Values
from helixweb.planning.models import Plan
from helixweb.planning.stored import stored_plan
from planner import instance_nodes
from runtime.protocol.phases import Phase

_KEPT = ("page_tokens", "max_batch_tokens", "kv_high_water", "max_queued_requests")


class DeployRefused(Refused):
    """The cluster is in a state that forbids it; each reason has its remedy."""

    default_code = "deploy_refused"
    listed = True


def deploy(
    plan: Plan,
    *,
    user: Any,
    options: DeployOptions,
    now: datetime,
    seen_generation: int | None = None,
    pinned_checkpoint: str = "",
) -> Deployment:
    """Make `plan` what its cluster must run; what ran there before is superseded.

    If both can run side by side, that one serves on until this one is up; paused, this one is, too.
    `pinned_checkpoint`: the model's commit, if it is known; otherwise it is looked up.

    `seen_generation` is the cluster's when the user decided (None: the present one). Raises
    DeployRefused with every obstacle, or when the generation is another one by now.
    """
    options = options.with_engine_of_model(plan.model.engine)
    pinned_checkpoint = pinned_checkpoint or _pin(plan)  # before the lock: a hub can be slow
    with transaction.atomic():
        _hold(plan.cluster_id)
        if obstacles := find_obstacles(plan, now=now, options=options):
            raise DeployRefused(*obstacles)
        live = Deployment.live(plan.cluster_id)
        generation = current_generation(plan.cluster_id)
        if seen_generation not in (None, generation):
            raise DeployRefused(_changed_meanwhile(plan.cluster, live))
        followed = _followed(live, plan, options, pinned_checkpoint=pinned_checkpoint)
        if live is not None:
            _supersede(live, now=now)
        columns = {name: getattr(options, name) for name in OPTION_NAMES}
        columns["max_context_tokens"] = options.max_context_tokens or plan.model.max_context_tokens
        deployment = Deployment(
            cluster=plan.cluster,
            plan=plan,
            model=plan.model,
            model_name=plan.model.name,
            checkpoint=plan.model.checkpoint,
            pinned_checkpoint=pinned_checkpoint,
            generation=generation,
            **columns,
            serving_plan={},
            follows_generation=followed,
            paused_at=None if live is None or followed is None else live.paused_at,
            created_by=user,
            created_at=now,
        )
        said = gettext_noop("Deploying %(model)s (plan %(plan)s).")
        _begin_generation(deployment, said, before=None, now=now, plan=plan.pk)
    return deployment


def roll_back(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """Deploy what served before again, with its options and the same version of the model.

    Nodes that it does without now are no reason to replan: a person chose to do without them.
    Raises DeployRefused as `deploy`; also when this one does not run any more, or was the first.
    """
    before = deployment_before(deployment)
    _check_serves(deployment)
    if before is None:
        raise DeployRefused(
            _("No deployment served on this cluster before deployment %(id)s; deploy another plan.")
            % {"id": deployment.pk}
        )
    is_same_model = before.plan.model.checkpoint == before.checkpoint
    with transaction.atomic():
        again = deploy(
            before.plan,
            user=user,
            options=before.options,
            now=now,
            seen_generation=deployment.generation,
            pinned_checkpoint=before.pinned_checkpoint if is_same_model else "",
        )
        if added := added_to(again, now=now):
            dismissed = Repair.State.DISMISSED
            Repair.objects.create(deployment=again, state=dismissed, added=added, noticed_at=now)
    return again


def deployment_before(deployment: Deployment) -> Deployment | None:
    """The last one in its cluster before it that came to serve."""
    served = Deployment.unscoped.filter(cluster=deployment.cluster_id, ready_at__isnull=False)
    return served.filter(pk__lt=deployment.pk).order_by("-pk").first()


def stop(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """Have every node let go of its layers. Raises DeployRefused unless it is in service."""
    with transaction.atomic():
        _hold(deployment.cluster_id)
        current = Deployment.unscoped.select_for_update(no_key=True).get(pk=deployment.pk)
        _check_serves(current)
        before = logged_values(current)
        current.status = Status.STOPPING
        current.follows_generation = None
        said = gettext_noop("%(user)s stops %(model)s.")
        _begin_generation(current, said, before=before, now=now, user=str(user))
    return current


def _check_serves(deployment: Deployment) -> None:
    if deployment.status not in SERVING:
        raise DeployRefused(
            _(
                "Deployment %(id)s is %(status)s; only one that is deploying, ready, "
                "degraded or failed can be stopped or rolled back."
            )
            % {"id": deployment.pk, "status": _(deployment.status)}
        )


def pause(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """Let running requests finish and new ones wait. Raises Conflict unless it serves unpaused."""
    said = gettext_noop("%(user)s pauses %(model)s: new requests wait.")
    return _switch(deployment, now, said=said, user=user)


def resume(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """Let in what waits. Raises Conflict unless it serves and is paused."""
    return _switch(deployment, None, said=gettext_noop("%(user)s resumes %(model)s."), user=user)


def _switch(
    deployment: Deployment, paused_at: datetime | None, *, said: str, user: Any
) -> Deployment:
    """Pages, the coordinator and the change log hear of it."""
    with transaction.atomic():
        row = Deployment.unscoped.select_for_update(no_key=True).get(pk=deployment.pk)
        before = logged_values(row)
        if row.status not in SERVING or before["paused"] == (paused_at is not None):
            text = (
                _("Deployment %(id)s is not paused, or does not run any more.")
                if paused_at is None
                else _("Deployment %(id)s is paused already, or does not run any more.")
            )
            raise Conflict(text % {"id": row.pk})
        row.paused_at = paused_at
        row.save(update_fields=["paused_at"])
        record(row, before=before)
        announce(row, said, user=str(user), model=row.model_name)
        wake_coordinators(row.cluster_id)
        return row


def follow_addresses(cluster: Cluster, *, now: datetime) -> None:
    """Start a new generation if a process of the cluster's deployment listens elsewhere now, or a
    coordinator has joined or gone.

    The generation before serves on meanwhile, as far as it still can. While a node of the placement
    is removed, or has not joined again, there is nothing to follow.
    """
    with transaction.atomic():
        _hold(cluster.pk)
        deployment = Deployment.serving(cluster.pk)
        if deployment is None:
            return
        orders = _orders(deployment)
        if orders is None or orders.are_those_of(deployment):
            return
        said = gettext_noop("%(model)s starts again: a process listens at a new address.")
        if len(deployment.coordinator_peers) != len(orders.columns["coordinator_peers"]):
            said = gettext_noop("%(model)s goes on with other coordinators.")
        before = logged_values(deployment)
        deployment.follows_generation, deployment.took_over_at = deployment.generation, None
        deployment.status = Status.DEPLOYING
        _begin_generation(deployment, said, before=before, now=now)


def _begin_generation(
    deployment: Deployment, said: str, *, before: Values | None, now: datetime, **of: Any
) -> None:
    """Save it with the cluster's next generation and the orders for that; the change log, open
    pages and the processes of the cluster hear of it."""
    deployment.generation = current_generation(deployment.cluster_id) + 1
    deployment.message = ""
    deployment.changed_at = deployment.pushed_at = now
    deployment.save()
    if deployment.status != Status.STOPPING:
        _write_orders(deployment, _orders(deployment), now=now)
    record(deployment, before=before)
    announce(deployment, said, model=deployment.model_name, **of)
    wake_cluster(deployment.cluster_id)


def _hold(cluster_id: int) -> None:
    """Let no other transaction deploy, stop or follow in this cluster until this one ends.

    Without it, a process that moves while a plan is being deployed would keep its old address in
    orders that its transaction does not see yet. (SQLite has one writer at a time anyway.)
    """
    Cluster.unscoped.select_for_update(no_key=True).only("pk").filter(pk=cluster_id).first()


def _pin(plan: Plan) -> str:
    """The commit of the live deployment if its requests continue on `plan`; else the newest."""
    live = Deployment.serving(plan.cluster_id)
    if live is not None and live.pinned_checkpoint and goes_on(live, plan):
        return live.pinned_checkpoint
    return pin_checkpoint(plan.model.checkpoint)


def _followed(
    live: Deployment | None, plan: Plan, options: DeployOptions, *, pinned_checkpoint: str
) -> int | None:
    """The generation that serves until a deployment of `plan` is ready: it must generate the same
    tokens, in pages of the same size."""
    if live is None or live.status not in SERVING or not goes_on(live, plan):
        return None
    if live.pinned_checkpoint != pinned_checkpoint:
        return None
    return live.generation if live.page_tokens == options.page_tokens else None


def goes_on(live: Deployment, plan: Plan) -> bool:
    """True if requests of `live` continue when `plan` replaces it.

    It must serve the same model by the same means: pipelines, instances or both.
    """
    if (plan.model.name, plan.model.checkpoint) != (live.model_name, live.checkpoint):
        return False
    return _means(live.plan) == _means(plan)


def options_kept(plan: Plan) -> dict[str, int | float]:
    """Options of the cluster's live deployment if the plan can be served beside it; else empty.

    Stages go on with what they serve only beside the same steps, pages and longest request.
    """
    live = Deployment.live(plan.cluster_id)
    if live is None or not goes_on(live, plan):
        return {}
    kept = {name: getattr(live, name) for name in _KEPT}
    longest = min(live.max_context_tokens, plan.model.max_context_tokens)
    return {**kept, "max_context_tokens": longest}


def _means(plan: Plan) -> tuple[bool, bool]:
    """Whether it has instances, and whether it has stages."""
    stored = stored_plan(plan)
    nodes = instance_nodes(stored.instances)
    return bool(nodes), len(nodes) < len(stored.placement.layers)


def _supersede(live: Deployment, *, now: datetime) -> None:
    """End what is in service."""
    before = logged_values(live)
    live.status = Status.SUPERSEDED
    live.ended_at = now
    live.save(update_fields=["status", "ended_at"])
    record(live, before=before)
    said = gettext_noop("Deployment %(id)s of %(model)s is superseded.")
    announce(live, said, id=live.pk, model=live.model_name)


def _changed_meanwhile(cluster: Cluster, live: Deployment | None) -> str:
    now_there = (
        _("deployment %(id)s of %(model_name)s is %(status)s")
        % {"id": live.pk, "model_name": live.model_name, "status": _(live.status)}
        if live
        else _("none is")
    )
    return _(
        "What cluster %(name)s runs was changed since this page was shown "
        "(%(now_there)s); press the button again if you still want to deploy."
    ) % {"name": cluster.name, "now_there": now_there}


def _orders(deployment: Deployment) -> Orders | None:
    """The orders of its generation to the processes; None while one of them has not joined."""
    # Those that have joined have an address.
    joined = Node.unscoped.filter(cluster=deployment.cluster_id, joined_at__isnull=False)
    nodes = {node.name: node for node in joined}
    coordinators = Coordinator.unscoped.filter(
        cluster=deployment.cluster_id, joined_at__isnull=False
    )
    if not coordinators or not set(deployment.plan.document["placement"]) <= set(nodes):
        return None
    return make_orders(deployment, nodes=nodes, coordinators=coordinators)


def _write_orders(deployment: Deployment, orders: Orders | None, *, now: datetime) -> None:
    """Store the orders of the deployment's generation; nothing is observed of it yet."""
    if orders is None:
        raise DeployRefused(_("The coordinator was removed just now; let one join, then deploy."))
    for name, value in orders.columns.items():
        setattr(deployment, name, value)
    deployment.save(update_fields=list(orders.columns))
    for name, columns in orders.assignments.items():
        NodeAssignment.unscoped.update_or_create(
            deployment=deployment,
            node_name=name,
            defaults={
                **columns,
                "observed_instances": [],
                "phase": Phase.IDLE.value,
                "message": "",
                "loaded_ratio": None,
                "stats": None,
                "updated_at": now,
            },
        )
