"""Measuring nodes beside what they serve: orders, how far they are, and what was found.

Level-triggered by heartbeats: their answers say which order stands, they say how far it is.
"""

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.problems import Conflict
from helixweb.common.sentences import sentence
from helixweb.deployment.models import STANDING, Profiling
from helixweb.inventory.models import LanguageModel, Node, ProfileVersion
from helixweb.inventory.services import take_measured
from planner.domain.errors import InvalidProblem
from planner.domain.profile import ComputeProfile
from runtime.protocol.profiling import (
    NodeMeasurement,
    ProfileOrder,
    ProfilingPhase,
    ProfilingProgress,
)

MESSAGE_LENGTH = 2000
_STATES = {
    ProfilingPhase.WAITING: Profiling.State.WAITING,
    ProfilingPhase.MEASURING: Profiling.State.MEASURING,
}


def order_profiling(node: Node, model: LanguageModel, *, user: Any, now: datetime) -> Profiling:
    """Have the node's agent measure it, when its traffic pauses. Raises Conflict."""
    _check(node, model)
    try:
        with transaction.atomic():
            row = Profiling.objects.create(node=node, model=model, created_by=user, created_at=now)
            _announce(
                row,
                sentence(
                    gettext_noop("%(user)s has node %(name)s measured for %(model)s."),
                    user=str(user),
                    name=node.name,
                    model=model.name,
                ),
            )
    except IntegrityError as error:
        raise Conflict(
            _("Node %(name)s is being measured already; wait for that, or cancel it.")
            % {"name": node.name}
        ) from error
    return row


def cancel_profiling(row: Profiling, *, now: datetime) -> None:
    """Have the agent stop; nothing it found so far counts. Raises Conflict when it has ended."""
    with transaction.atomic():
        stopped = Profiling.objects.filter(pk=row.pk, state__in=STANDING).update(
            state=Profiling.State.CANCELLED, ended_at=now, message=""
        )
        if not stopped:
            raise Conflict(_("That measurement has ended already."))
        _announce(row)


def follow_profiling(
    node: Node, progress: ProfilingProgress | None, *, now: datetime
) -> ProfileOrder | None:
    """Note what a heartbeat says, and give the order that stands, if any."""
    row = (
        Profiling.objects.filter(node=node, state__in=STANDING)
        .select_related("node__cluster", "model")
        .first()
    )
    if row is None:
        return None
    if progress is not None and progress.id == row.pk:
        _note(row, progress, now=now)
        if not row.is_open:
            return None
    return ProfileOrder(
        id=row.pk,
        checkpoint=row.model.checkpoint,
        mean_prompt_tokens=node.cluster.mean_prompt_tokens,
        mean_output_tokens=node.cluster.mean_output_tokens,
        max_context_tokens=max(2, row.model.max_context_tokens),
    )


def profiling_of(node: Node) -> Profiling | None:
    """The newest order for it."""
    rows = Profiling.objects.filter(node=node).select_related("model", "version__profile")
    return rows.order_by("-pk").first()


def models_to_measure() -> list[LanguageModel]:
    """Those whose checkpoint lies on nodes."""
    return list(LanguageModel.objects.exclude(checkpoint=""))


def _check(node: Node, model: LanguageModel) -> None:
    if node.joined_at is None:
        raise Conflict(
            _("Node %(name)s has not joined: there is no machine to measure yet.")
            % {"name": node.name}
        )
    if node.is_emulated:
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
    message = progress.message[:MESSAGE_LENGTH].replace("\0", "")
    with transaction.atomic():
        if progress.phase in _STATES:
            _change(row, state=_STATES[progress.phase], done=progress.done, message=message)
        elif progress.measurement is None:
            message = message or "it ended without a result"
            _change(row, state=Profiling.State.FAILED, message=message, ended_at=now)
        else:
            _take(row, progress.measurement, now=now)


def _take(row: Profiling, measurement: NodeMeasurement, *, now: datetime) -> None:
    try:
        with transaction.atomic():
            version = _kept(row, measurement, now=now)
    except InvalidProblem as error:
        _change(row, state=Profiling.State.FAILED, message=str(error), ended_at=now)
        return
    _change(row, state=Profiling.State.DONE, done=1.0, message="", version=version, ended_at=now)


def _kept(row: Profiling, found: NodeMeasurement, *, now: datetime) -> ProfileVersion:
    told = found.model_dump(mode="json")
    evidence = {key: value for key, value in told.items() if key not in _OF_PROFILE}
    profile = ComputeProfile(
        name=row.node.name,
        gpu=found.gpu,
        vram_bytes=found.vram_bytes,
        max_layers=found.max_layers,
        tokens_per_s=found.tokens_per_s,
        kv_capacity_token_layers=found.kv_capacity_token_layers,
        layer_times=found.layer_times,
    )
    return take_measured(row.node, row.model, profile, evidence=evidence, now=now)


_OF_PROFILE = frozenset(
    {
        "gpu", "vram_bytes", "max_layers", "tokens_per_s", "kv_capacity_token_layers",
        "layer_times",
    }
)  # fmt: skip


def _change(row: Profiling, **changes: Any) -> None:
    """Write and announce what differs."""
    changed = {name: value for name, value in changes.items() if getattr(row, name) != value}
    if not changed:
        return
    if not Profiling.objects.filter(pk=row.pk, state__in=STANDING).update(**changed):
        row.state = Profiling.State.CANCELLED  # a moment ago
        return
    for name, value in changed.items():
        setattr(row, name, value)
    _announce(row)


def _announce(row: Profiling, said: dict[str, Any] | None = None) -> None:
    data = {"node": row.node_id, "state": row.state, "done": row.done, "message": row.message}
    events.emit(f"node:{row.node_id}", "profiling", {**data, **(said or {})})
