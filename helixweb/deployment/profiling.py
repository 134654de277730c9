"""Measures nodes while they serve: orders, their progress, and results.

Level-triggered by heartbeats: they report the progress, their answers contain the open order.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from statistics import median
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.refusals import Conflict
from helixweb.common.sentences import sentence
from helixweb.deployment.models import STANDING, Profiling
from helixweb.inventory.engines import takes_engines
from helixweb.inventory.models import (
    Cluster,
    LanguageModel,
    Node,
    NodeState,
    Origin,
    Profile,
    ProfileVersion,
)
from helixweb.inventory.node_list import in_state
from helixweb.inventory.services.profile_versions import take_measured
from helixweb.inventory.stale_profiles import measured_alike, stale_profiles
from planner import ComputeProfile, InvalidProblem, KvMinimum
from planner.serialization import profile_from_dict
from runtime.protocol.engines import Engine
from runtime.protocol.profiling import (
    MeasuredPoint,
    NodeMeasurement,
    ProfileOrder,
    ProfilingPhase,
    ProfilingProgress,
)

MESSAGE_LENGTH = 2000
# Relative tolerance between step times of nodes of the same kind: timings vary that much.
CHECK_WITHIN = 0.2
State = Profiling.State
_OF_PROFILE = (
    "gpu", "vram_bytes", "max_layers", "tokens_per_s", "kv_capacity_token_layers",
    "layer_times", "memory",
)  # fmt: skip
_STATES = {ProfilingPhase.WAITING: State.WAITING, ProfilingPhase.MEASURING: State.MEASURING}


def order_profiling(
    node: Node, model: LanguageModel, *, user: Any, now: datetime, may_check: bool = False
) -> Profiling:
    """Have the node's agent measure it, when its traffic pauses. `may_check`: what was measured of
    a node of the same kind is enough, if a few steps take as long here. Raises Conflict."""
    _check(model, node)
    row = Profiling(node=node, model=model, created_by=user, created_at=now, may_check=may_check)
    said = gettext_noop("%(user)s has node %(name)s measured for %(model)s.")
    try:
        with transaction.atomic():
            row.save()
            _announce(row, **sentence(said, user=str(user), name=node.name, model=model.name))
    except IntegrityError as error:
        raise Conflict(
            _("Node %(name)s is being measured already; wait for that, or cancel it.")
            % {"name": node.name}
        ) from error
    return row


def nodes_without_profile(cluster: Cluster, model: LanguageModel) -> QuerySet[Node]:
    """Nodes without a profile for the model, which plans cannot use yet."""
    profiles = Profile.unscoped.filter(cluster=cluster, model=model)
    return cluster.nodes.exclude(profile_name__in=profiles.values("name"))


def nodes_to_measure(cluster: Cluster, model: LanguageModel) -> list[Node]:
    """Those of `nodes_without_profile` that can be measured now."""
    if not model.checkpoint:
        return []
    ordered = Profiling.unscoped.filter(state__in=STANDING).values("node")
    nodes = nodes_without_profile(cluster, model).exclude(joined_at=None).exclude(pk__in=ordered)
    return [node for node in nodes.order_by("name") if not node.is_emulated]


def measurable(cluster: Cluster, *, now: datetime) -> list[Node]:
    """Nodes that are online and whose times can be measured."""
    rows = Node.unscoped.filter(in_state(NodeState.ONLINE, now=now), cluster=cluster)
    return [node for node in rows.order_by("pk") if not node.is_emulated]


def measure_cluster(
    cluster: Cluster, model: LanguageModel, *, user: Any, now: datetime, again: bool = False
) -> list[Profiling]:
    """Order measurements of all nodes that lack a fresh one for the model, or of all if `again`;
    returns the orders, including those that were open already. Raises Conflict if there are none.
    """
    _check(model)
    online = measurable(cluster, now=now)
    wanted = online if again else lacking_measurement(online, model)
    if not wanted:
        raise Conflict(
            _("Every node that is online has a fresh measurement for %(model)s.")
            % {"model": model.name}
            if online
            else _("No node of %(cluster)s that can be measured is online.")
            % {"cluster": cluster.name}
        )
    standing = {
        row.node_id: row for row in Profiling.unscoped.filter(node__in=wanted, state__in=STANDING)
    }
    return [
        standing.get(node.pk)
        or order_profiling(node, model, user=user, now=now, may_check=not again)
        for node in wanted
    ]


def lacking_measurement(nodes: Sequence[Node], model: LanguageModel) -> list[Node]:
    """Nodes whose profile for the model is missing, an estimate, or measured under other
    conditions."""
    found = Profile.unscoped.filter(cluster__in={node.cluster_id for node in nodes}, model=model)
    fresh = set(found.exclude(origin=Origin.ESTIMATED).values_list("cluster", "name"))
    stale = stale_profiles(nodes, model=model)
    return [
        node
        for node in nodes
        if (node.cluster_id, node.profile_name) not in fresh or node.pk in stale
    ]


def measure_missing(
    cluster: Cluster, model: LanguageModel, user: Any, now: datetime, **_named: Any
) -> list[str]:
    """Answers `inventory.signals.profiles_missing`: the names of nodes without any profile for the
    model, if agents measure them from now on."""
    lacking = set(nodes_without_profile(cluster, model).values_list("pk", flat=True))
    if not lacking:
        return []
    try:
        rows = measure_cluster(cluster, model, user=user, now=now)
    except Conflict:
        return []
    return [row.node.name for row in rows if row.node_id in lacking]


def waits_for(row: Profiling, standing: Iterable[Profiling], *, now: datetime) -> Profiling | None:
    """The measurement that must end before this one: of another node on the same machine, as they
    share its cores. Nodes with GPUs of their own wait for none."""
    if row.state != State.ORDERED or row.node.gpus_are_its_own:
        return None
    for other in sorted(standing, key=lambda one: one.pk):
        if other.pk == row.pk or other.node.gpus_are_its_own or other.node.host != row.node.host:
            continue
        has_begun = other.state != State.ORDERED
        is_heard = other.node.state_at(now) is NodeState.ONLINE
        if is_heard and (has_begun or other.pk < row.pk):
            return other
    return None


def standing_in(cluster_id: int) -> list[Profiling]:
    """Orders of the cluster's nodes that have not ended, oldest first."""
    rows = Profiling.unscoped.filter(node__cluster=cluster_id, state__in=STANDING)
    return list(rows.select_related("node", "model", "like").order_by("pk"))


def measuring_of(cluster: Cluster, *, now: datetime) -> dict[str, Any]:
    """Page context of a cluster's open orders, and of the newest order of each node if it `failed`.

    `unmeasured`: for each model, how many nodes a click on *Measure all nodes* would measure.
    """
    nodes, models = measurable(cluster, now=now), models_to_measure()
    rows = _rows(standing_in(cluster.pk), now=now)
    newest: dict[int, Profiling] = {}
    for order in Profiling.unscoped.filter(node__cluster=cluster).select_related("node", "model"):
        newest.setdefault(order.node_id, order)
    return {
        "rows": rows,
        "left_s": max((row["left_s"] for row in rows if row["left_s"] is not None), default=None),
        "failed": [one for one in newest.values() if one.state == State.FAILED],
        "unmeasured": [(model, len(lacking_measurement(nodes, model))) for model in models],
        "can_measure": bool(nodes and models),
    }


def _rows(standing: Sequence[Profiling], *, now: datetime) -> list[dict[str, Any]]:
    """Table rows, oldest order first; `after` is the name of the node that an order waits for.

    A waiting order is assumed to take as long as the one it waits for. `left_s` None: unknown.
    """
    found = []
    queued: Counter[str] = Counter()
    for order in standing:
        before, left_s = waits_for(order, standing, now=now), order.left_s_at(now)
        if before is not None:
            queued[order.node.host] += 1
            first_s, whole_s = before.left_s_at(now), before.whole_s_at(now)
            if first_s is not None and whole_s is not None:
                left_s = first_s + queued[order.node.host] * whole_s
        after = "" if before is None else before.node.name
        found.append({"order": order, "after": after, "left_s": left_s})
    return found


def cancel_profiling(row: Profiling, *, now: datetime) -> None:
    """Make the agent stop; its partial results are dropped. Raises Conflict when it has ended."""
    if not _change(row, state=State.CANCELLED, ended_at=now, message=""):
        raise Conflict(_("That measurement has ended already."))


def follow_profiling(
    node: Node, progress: ProfilingProgress | None, *, now: datetime
) -> ProfileOrder | None:
    """Store the progress in a heartbeat, and return the open order, if any."""
    rows = Profiling.unscoped.filter(node=node, state__in=STANDING)
    row = rows.select_related("node__cluster", "model", "like").first()
    if row is None:
        return None
    if progress is not None and progress.id == row.pk:
        with transaction.atomic():
            if row.began_at is None:
                _change(row, began_at=now)
            _note(row, progress, now=now)
        if not row.is_open:
            return None
    elif row.began_at is None and waits_for(row, standing_in(node.cluster_id), now=now):
        return None
    elif row.began_at is None and row.may_check and row.like is None and _knows_checks(node):
        _change(row, like=measured_alike(node, row.model))
    return ProfileOrder(
        id=row.pk,
        checkpoint=row.model.checkpoint,
        mean_prompt_tokens=node.cluster.mean_prompt_tokens,
        mean_output_tokens=node.cluster.mean_output_tokens,
        max_context_tokens=max(2, row.model.max_context_tokens),
        kv_minimum=_chosen_kv_minimum(node, row.model),
        check=() if row.like is None else _steps_to_check(row.like),
        engine=Engine(row.model.engine) if takes_engines(node.hardware) else Engine.AUTO,
    )


def _knows_checks(node: Node) -> bool:
    """Whether its agent is of a release that takes such orders: one that listens while idle."""
    return "listens" in node.reach


def _steps_to_check(version: ProfileVersion) -> tuple[MeasuredPoint, ...]:
    """The smallest and the largest measured step of each phase, with most layers."""
    points = [MeasuredPoint.model_validate(point) for point in (version.evidence or {})["points"]]
    most = max(point.layers for point in points)
    found = []
    for phase in ("decode", "prompt"):
        steps = [point for point in points if (point.phase, point.layers) == (phase, most)]
        ends = sorted(steps, key=lambda point: (point.batch * point.tokens, point.batch))
        found += ends[:1] + ends[1:][-1:]
    return tuple(found)


def _chosen_kv_minimum(node: Node, model: LanguageModel) -> KvMinimum | None:
    """The user's choice in the node's profile; None if the profile has none."""
    rows = Profile.unscoped.filter(cluster=node.cluster_id, model=model, name=node.profile_name)
    profile = rows.only("memory", "measured_under").first()
    if profile is None:
        return None
    conditions = profile.memory if profile.measured_under is None else profile.measured_under
    chosen = (conditions or {}).get("kv_minimum")
    return None if chosen is None else KvMinimum(**chosen)


def profiling_of(node: Node) -> Profiling | None:
    """The newest order for the node."""
    rows = Profiling.unscoped.filter(node=node).select_related("model", "version__profile")
    return rows.order_by("-pk").first()


def models_to_measure() -> list[LanguageModel]:
    """Models with a checkpoint, which nodes can read."""
    return list(LanguageModel.objects.exclude(checkpoint=""))


def _check(model: LanguageModel, node: Node | None = None) -> None:
    """Raise Conflict if the model, or the node for it, cannot be measured."""
    if node is not None and node.joined_at is None:
        raise Conflict(
            _("Node %(name)s has not joined: there is no machine to measure yet.")
            % {"name": node.name}
        )
    if node is not None and node.is_emulated:
        raise Conflict(
            _("Node %(name)s is emulated and takes its times from a profile: nothing to measure.")
            % {"name": node.name}
        )
    if not model.checkpoint:
        raise Conflict(
            _("Model %(model)s has no checkpoint; say on its page where it lies on the nodes.")
            % {"model": model.name}
        )


def _note(row: Profiling, progress: ProfilingProgress, *, now: datetime) -> None:
    message = progress.message[:MESSAGE_LENGTH]
    if progress.phase in _STATES:
        _change(row, state=_STATES[progress.phase], done=progress.done, message=message)
    elif row.like is not None:
        _take_check(row, row.like, progress, now=now)
    elif progress.measurement is None:
        _fail(row, message or "it ended without a result", now=now)
    else:
        _take(row, progress.measurement, now=now)


def _take_check(
    row: Profiling, like: ProfileVersion, progress: ProfilingProgress, *, now: datetime
) -> None:
    """Take over the measurement of a node of the same kind, or have this one measured whole."""
    expected = _steps_to_check(like)
    ratios = [
        here.seconds / there.seconds  # the least of several runs: what else runs only adds to it
        for here, there in zip(progress.checked, expected, strict=False)
    ]
    if len(ratios) == len(expected) and abs(median(ratios) - 1) <= CHECK_WITHIN:
        profile = profile_from_dict(like.document, name=row.node.name)
        checked = [point.model_dump(mode="json") for point in progress.checked]
        evidence = {**(like.evidence or {}), "like": like.node, "checked": checked}
        _finish(row, profile, evidence, now=now)
        return
    why = (
        f"steps take {median(ratios):.2f} times as long as on {like.node}"
        if ratios
        else progress.message or "the check ended without a result"
    )
    message = f"measured whole instead: {why}"
    _change(row, state=State.CANCELLED, message=message, ended_at=now)
    order_profiling(row.node, row.model, user=row.created_by, now=now)


def _take(row: Profiling, found: NodeMeasurement, *, now: datetime) -> None:
    evidence = found.model_dump(mode="json", exclude=set(_OF_PROFILE))
    if (chosen := _chosen_kv_minimum(row.node, row.model)) is not None:
        evidence["kv_minimum"] = asdict(chosen)
    try:
        with transaction.atomic():
            columns = {name: getattr(found, name) for name in _OF_PROFILE}
            _finish(row, ComputeProfile(name=row.node.name, **columns), evidence, now=now)
    except InvalidProblem as error:
        _fail(row, str(error), now=now)


def _finish(
    row: Profiling, profile: ComputeProfile, evidence: dict[str, Any], *, now: datetime
) -> None:
    version = take_measured(row.node, row.model, profile, evidence=evidence, now=now)
    _change(row, state=State.DONE, done=1.0, message="", version=version, ended_at=now)


def _fail(row: Profiling, message: str, *, now: datetime) -> None:
    _change(row, state=State.FAILED, message=message, ended_at=now)


def _change(row: Profiling, **changes: Any) -> bool:
    """Write and announce what differs, of one that has not ended; False if it has."""
    changed = {name: value for name, value in changes.items() if getattr(row, name) != value}
    with transaction.atomic():
        standing = Profiling.unscoped.filter(pk=row.pk, state__in=STANDING)
        if not (standing.update(**changed) if changed else row.is_open):
            row.state = State.CANCELLED  # a moment ago
            return False
        for name, value in changed.items():
            setattr(row, name, value)
        if changed:
            _announce(row)
    return True


def _announce(row: Profiling, **said: Any) -> None:
    data = {"node": row.node_id, "state": row.state, "done": row.done, "message": row.message}
    events.emit(f"node:{row.node_id}", "profiling", {**data, **said})
    events.emit(f"cluster:{row.node.cluster_id}", "profiling", data)
