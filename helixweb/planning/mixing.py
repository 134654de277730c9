"""One attempt at planning several models on one cluster at once."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from helixweb.common import events, leases
from helixweb.planning import attempts, turns
from helixweb.planning.keeper import LeaseKeeper
from helixweb.planning.models import MixShare, ModelMix, PlanRun
from helixweb.planning.options import options_from_json, options_to_json
from planner.compute_plan import NoPlacementFound
from planner.domain import plan as domain
from planner.domain.errors import PlannerError
from planner.multi_model import ModelMix as FoundMix
from planner.multi_model import ModelShare, plan_models
from planner.serialization import problem_from_dict

logger = logging.getLogger(__name__)
# A mix that has taken its worker down this often is not tried again.
MAX_ATTEMPTS = 3
Status = ModelMix.Status


def plan_mix(*, mix_id: int) -> list[int]:
    """Claim the mix, plan it, store a finished run for each model; returns the ids of these runs.

    Does nothing if it is owned, finished, or must wait for its turn.
    """
    attempt = turns.claim(ModelMix, task_id=mix_id, now=timezone.now())
    if attempt is None:
        return []
    mix = ModelMix.objects.get(pk=mix_id)
    try:
        return _attempt(mix, attempt=attempt)
    except leases.LostLease as lost:
        logger.info("%s; its answer is dropped", lost)
        return []


def _attempt(mix: ModelMix, *, attempt: int) -> list[int]:
    if attempt > MAX_ATTEMPTS:
        error = f"the worker died {MAX_ATTEMPTS} times while planning this mix"
        _finish(mix, attempt=attempt, status=Status.FAILED, error=error)
        return []
    shares = list(mix.shares.order_by("pk"))
    keeper = LeaseKeeper(ModelMix, task_id=mix.pk, attempt=attempt)
    try:
        with keeper:
            found = plan_models(
                tuple(
                    ModelShare(problem=problem_from_dict(share.problem), weight=share.weight)
                    for share in shares
                ),
                options=options_from_json(mix.options),
                cancel=keeper,
            )
    except NoPlacementFound as error:
        status = Status.CANCELLED if keeper.is_cancelled() else Status.FAILED
        _finish(mix, attempt=attempt, status=status, error=str(error))
    except PlannerError as error:
        _finish(mix, attempt=attempt, status=Status.FAILED, error=str(error))
    else:
        return _finish_with_plans(mix, shares, found, attempt=attempt)
    return []


def _finish_with_plans(
    mix: ModelMix, shares: Sequence[MixShare], found: FoundMix, *, attempt: int
) -> list[int]:
    with transaction.atomic():
        _finish(
            mix,
            attempt=attempt,
            status=Status.SUCCEEDED,
            level_tokens_per_s=found.level_tokens_per_s,
            level_bound_tokens_per_s=found.level_bound_tokens_per_s,
        )
        return [
            attempts.record_finished_run(
                PlanRun(
                    cluster_id=mix.cluster_id,
                    model_id=share.model_id,
                    problem=share.problem,
                    options=_options_beside(mix, plan, found.plans),
                    created_by_id=mix.created_by_id,
                    mix=mix,
                ),
                plan,
                now=timezone.now(),
            ).pk
            for share, plan in zip(shares, found.plans, strict=True)
        ]


def _options_beside(
    mix: ModelMix, plan: domain.Plan, plans: Sequence[domain.Plan]
) -> dict[str, Any]:
    """The mix's options, with the other models' nodes left to them."""
    options = options_from_json(mix.options)
    others = {name for other in plans if other is not plan for name in other.placement.layers}
    rules = replace(options.rules, excluded_nodes=options.rules.excluded_nodes | others)
    return options_to_json(replace(options, rules=rules))


def _finish(mix: ModelMix, *, attempt: int, status: ModelMix.Status, **fields: Any) -> None:
    with transaction.atomic():
        leases.finish(
            ModelMix, task_id=mix.pk, attempt=attempt, status=status, now=timezone.now(), **fields
        )
        events.emit(mix.topic, "model-mix", {"mix": mix.pk, "status": status.value})
