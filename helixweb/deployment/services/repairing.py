"""Repair: when a node is lost or added, searches a new placement, and offers or deploys it.

The coordinator routes requests around lost nodes at once; this moves layers. Depending on the
cluster's policy a better placement is deployed, offered to users, or not searched.
Level-triggered by reports of lost stages, by the end of a search and by beat: called again, it
continues from the stored row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common.refusals import Conflict
from helixweb.deployment.announcing import announce, nudge_page, record
from helixweb.deployment.coordinators import observed
from helixweb.deployment.models import OPEN, SERVING, Deployment, NodeAssignment, Repair
from helixweb.deployment.services.deploying import DeployRefused, deploy
from helixweb.deployment.services.draining import draining_names, is_held_up
from helixweb.deployment.services.losses import (
    Changed,
    answer_of,
    changes_of,
    has_instances,
    is_about,
    left_out,
    options_for,
    search_options,
    stops_service,
)
from helixweb.inventory.models import Node, NodeState, Replanning
from helixweb.inventory.node_list import in_state
from helixweb.inventory.services.presence import was_told_to_end
from helixweb.planning.models import Plan, PlanRun, Replan, value_of_point
from helixweb.planning.services.starting import adopt_point, start_plan_run, start_replan
from planner import PlannerError
from runtime.protocol.phases import Phase

State = Repair.State
# A process that is started again by its supervisor is back within this.
WAITS_S = 5.0
SEARCH_S = 3.5  # with its queue and what is stored, a plan is there within five
# While nothing serves, requests wait for the search.
SHORT_SEARCH_S = 1.0
# A placement that gains less is not worth that requests wait for layers to load.
LEAST_GAIN = 1.05
# Of answers with nearly the most value, the one that loads the fewest bytes.
NEARLY = 0.9


@shared_task
def repair_deployment(*, deployment_id: int) -> None:
    """Do what is next about lost nodes; may run twice."""
    if (deployment := observed().filter(pk=deployment_id).first()) is not None:
        repair(deployment, now=timezone.now())


def repair_after_commit(deployment_id: int, *, after_s: float = 0.0) -> None:
    """Have a worker look; if the broker is away, beat looks later."""
    transaction.on_commit(
        lambda: repair_deployment.apply_async(
            kwargs={"deployment_id": deployment_id}, countdown=after_s
        ),
        robust=True,
    )


def follow_search(*, job_id: int, **_signal: Any) -> None:
    """A search is over; a repair may have waited for it."""
    for row in Repair.unscoped.filter(run=job_id, state__in=OPEN).only("deployment_id"):
        repair_after_commit(row.deployment_id)


def repair(deployment: Deployment, *, now: datetime) -> None:
    """Do the next thing about what changed under a deployment that serves, if there is one."""
    if deployment.status not in SERVING:
        return
    policy = deployment.cluster.replanning
    row = next((row for row in deployment.repairs.all() if row.state in OPEN), None)
    changed = changes_of(deployment, now=now)
    if row is not None and (policy == Replanning.NEVER or not is_about(row, changed)):
        _end(row, State.OVERTAKEN, why=gettext_noop("The cluster changed again."))
        row = None
    if policy == Replanning.NEVER or not any(changed):
        return
    row = row or _notice(deployment, changed, now=now)
    if row is None:
        return
    if row.state == State.WAITING:
        is_out = bool(stops_service(deployment, row.lost, now=now))
        if _is_due(row, waits_s=0.0 if is_out else WAITS_S, now=now):
            seconds = min(SHORT_SEARCH_S, SEARCH_S) if is_out else SEARCH_S
            _search(deployment, row, seconds=seconds)
    elif row.state == State.COMPUTING:
        _conclude(deployment, row, policy=policy, now=now)


def accept(row: Repair, *, user: Any, now: datetime) -> Deployment:
    """Deploy the offered placement. Raises Conflict without an offer, DeployRefused as `deploy`."""
    with transaction.atomic():
        _take_offer(row, State.DEPLOYED)
        return _deploy(row, user=user, now=now)


def dismiss(row: Repair, *, user: Any, now: datetime) -> None:
    """Decline the offered placement. Raises Conflict without an offer."""
    with transaction.atomic():
        _take_offer(row, State.DISMISSED)
        before, after = {"repair": State.OFFERED.value}, {"repair": State.DISMISSED.value}
        record(row.deployment, before=before, after=after)
        said = gettext_noop("%(user)s leaves the layers of %(name)s where they are.")
        announce(row.deployment, said, user=str(user), name=row.deployment.model_name)


def _take_offer(row: Repair, state: State) -> None:
    if not Repair.unscoped.filter(pk=row.pk, state=State.OFFERED).update(state=state):
        raise Conflict(
            _(
                "Repair %(id)s offers nothing any more; look at its deployment's page for what "
                "serves."
            )
            % {"id": row.pk}
        )


def _is_due(row: Repair, *, waits_s: float, now: datetime) -> bool:
    """Whether the change has lasted `waits_s`.

    An agent that reports its shutdown is noticed at once, but may only restart: it gets the
    additional time after which a silent one would be noticed.
    """
    waited = now - row.noticed_at
    if waited < timedelta(seconds=waits_s):
        return False
    missed_after = timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S)
    return waited >= timedelta(seconds=WAITS_S) + missed_after or not was_told_to_end(
        row.deployment.cluster_id, row.lost, since=row.noticed_at - missed_after
    )


def _is_back_soon(row: Repair, *, now: datetime) -> bool:
    """Whether to wait before layers are moved: the agent of a lost node may restart its stage
    within `WAITS_S` if it was heard after the loss."""
    lost = NodeAssignment.unscoped.filter(deployment=row.deployment_id, node_name__in=row.lost)
    answers = Q(node__last_seen_at__gt=row.noticed_at) | ~Q(phase=Phase.READY.value)
    is_heard = lost.filter(
        answers, node__in=Node.unscoped.filter(in_state(NodeState.ONLINE, now=now))
    )
    waits_s = WAITS_S if is_heard.exists() else settings.HELIX_HEARTBEAT_INTERVAL_S
    if _is_due(row, waits_s=waits_s, now=now):
        return False
    left_s = waits_s - (now - row.noticed_at).total_seconds()
    if left_s > 0:  # else beat looks again
        repair_after_commit(row.deployment_id, after_s=left_s)
    return True


def _notice(deployment: Deployment, changed: Changed, *, now: datetime) -> Repair | None:
    """The row of this very change; None if it was dealt with before."""
    for before in deployment.repairs.exclude(state=State.OVERTAKEN):
        if is_about(before, changed):
            return None
    row = Repair(deployment=deployment, lost=changed.lost, added=changed.added, noticed_at=now)
    Repair.objects.bulk_create([row], ignore_conflicts=True)  # another worker may be first
    kept = deployment.repairs.filter(state=State.WAITING).first()
    return kept if kept is not None and is_about(kept, changed) else None


def _search(
    deployment: Deployment, row: Repair, *, seconds: float, of: State = State.WAITING
) -> None:
    away = _away(deployment, row)
    options = _options(deployment.plan, without=away, seconds=seconds)
    same = Repair.unscoped.filter(pk=row.pk, state=of, run=row.run_id)
    try:
        with transaction.atomic():
            if not same.update(state=State.COMPUTING, left_out=sorted(away)):
                return  # another worker was first
            plan = deployment.plan
            run = (
                start_plan_run(cluster=plan.cluster, model=plan.model, options=options, user=None)
                if has_instances(plan)
                else start_replan(plan, options=options, budget_bytes=None, user=None)
            )
            Repair.unscoped.filter(pk=row.pk).update(run=run)
    except PlannerError as error:
        _end(row, State.FAILED, why=str(error))
        return
    said = gettext_noop("Looking for a better placement of %(name)s (%(what)s).")
    announce(deployment, said, what=in_brief(row), name=deployment.model_name)


def in_brief(row: Repair) -> str:
    """Lost nodes as -name and new ones as +name."""
    return " ".join([f"-{name}" for name in row.lost] + [f"+{name}" for name in row.added])


def _away(deployment: Deployment, row: Repair) -> frozenset[str]:
    """Nodes that a new plan cannot use: lost, drained, or not joined."""
    joined = Node.unscoped.filter(cluster=deployment.cluster_id, joined_at__isnull=False)
    here = set(joined.values_list("name", flat=True)) - set(row.lost)
    here -= set(draining_names(deployment.cluster_id))
    known = set(Node.unscoped.filter(cluster=deployment.cluster_id).values_list("name", flat=True))
    return frozenset(known - here)


def _options(plan: Plan, *, without: frozenset[str], seconds: float) -> Any:
    before = search_options(plan)
    by_person = before.rules.excluded_nodes - left_out(plan)
    rules = replace(before.rules, excluded_nodes=by_person | without)
    return replace(before, rules=rules, time_limit_s=seconds)


def _conclude(deployment: Deployment, row: Repair, *, policy: str, now: datetime) -> None:
    run = row.run
    if run is None:
        _end(row, State.FAILED, why=gettext_noop("Its search was deleted."))
        return
    if not run.is_finished:
        return
    if run.status == PlanRun.Status.FAILED and run.options["time_limit_s"] < SEARCH_S:
        _search(deployment, row, seconds=SEARCH_S, of=State.COMPUTING)
        return
    if run.status != PlanRun.Status.SUCCEEDED:
        _end(row, State.FAILED, why=run.error or gettext_noop("The search was cancelled."))
        return
    if has_instances(deployment.plan):
        found, number = answer_of(deployment.plan, run.plan, lost=row.lost), None
    else:
        found, number = _of_points(run)
    Repair.unscoped.filter(pk=row.pk).update(**found)
    for name, figure in found.items():
        setattr(row, name, figure)
    unmoved, best = row.values
    gains = best >= LEAST_GAIN * unmoved and found["moved_bytes"] > 0
    serves = found["flow_tokens_per_s"] > 0
    # Requests may need other routes to leave a node, if no layers have to move for them.
    if not gains and not (serves and is_held_up(deployment.cluster_id, row.lost)):
        _end(row, State.NEEDLESS, why="")
        return
    is_out = found["unmoved_tokens_per_s"] <= 0
    if policy == Replanning.AUTOMATIC and is_out and _is_back_soon(row, now=now):
        return
    # All or nothing: should the worker die meanwhile, the next one does it.
    with transaction.atomic():
        ends = State.DEPLOYED if policy == Replanning.AUTOMATIC else State.OFFERED
        if not Repair.unscoped.filter(pk=row.pk, state=State.COMPUTING).update(state=ends):
            return
        if number is not None:
            row.run = adopt_point(run, number, user=None)
            Repair.unscoped.filter(pk=row.pk).update(run=row.run)
        if ends is State.OFFERED:
            announce(
                deployment,
                gettext_noop(
                    "A better placement of %(name)s was found (%(what)s); deploy it on the "
                    "deployment's page."
                ),
                what=in_brief(row),
                name=deployment.model_name,
            )
        else:
            try:
                _deploy(row, user=None, now=now)
            except DeployRefused as error:
                Repair.unscoped.filter(pk=row.pk).update(state=State.FAILED, why=str(error))


def _of_points(run: PlanRun) -> tuple[dict[str, float], int | None]:
    """Columns from a replanning, and the number of its answer if not the run's own plan."""
    points = Replan.unscoped.get(run=run).points
    number = chosen_answer(points)
    unmoved = sum(p["flow_tokens_per_s"] for p in points[:1] if p["moved_bytes"] == 0)
    found = {name: points[number][name] for name in ("flow_tokens_per_s", "moved_bytes")}
    found["unmoved_tokens_per_s"] = unmoved
    is_own = points[number]["placement"] == run.plan.document["placement"]
    return found, None if is_own else number


def chosen_answer(points: Sequence[Mapping[str, Any]]) -> int:
    """The answer of a replanning with fewest bytes among those of nearly the highest value."""
    values = [value_of_point(point) for point in points]
    return next(n for n, value in enumerate(values) if value >= NEARLY * max(values))


def _deploy(row: Repair, *, user: Any, now: datetime) -> Deployment:
    """Deploy the repair. Raises DeployRefused, also if something was deployed meanwhile."""
    before = row.deployment
    if row.run is None:
        raise DeployRefused(gettext_noop("Its search was deleted."))
    return deploy(
        row.run.plan,
        user=user,
        options=options_for(before, row.run.plan),
        now=now,
        seen_generation=before.generation,
    )


def _end(row: Repair, state: State, *, why: str) -> None:
    with transaction.atomic():
        if Repair.unscoped.filter(pk=row.pk, state__in=OPEN).update(state=state, why=why):
            nudge_page(row.deployment)
