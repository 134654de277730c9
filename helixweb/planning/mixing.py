"""The work of a mix: plans several models on one cluster at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.utils import timezone

from helixweb.common.jobs import Cancelled, Outcome
from helixweb.common.leases import Lease
from helixweb.planning import incumbents
from helixweb.planning.models import ModelMix, PlanRun
from helixweb.planning.options import options_from_json, options_to_json
from planner.compute_plan import NoPlacementFound
from planner.domain import plan as domain
from planner.multi_model import ModelShare, plan_models
from planner.serialization import problem_from_dict


def plan_mix(mix: ModelMix, lease: Lease) -> Outcome:
    """Plan the mix's models at once; a finished run is stored for each."""
    shares = list(mix.shares.order_by("pk"))
    try:
        found = plan_models(
            tuple(
                ModelShare(problem=problem_from_dict(share.problem), weight=share.weight)
                for share in shares
            ),
            options=options_from_json(mix.options),
            cancel=lease,
        )
    except NoPlacementFound as error:
        if lease.is_cancelled():
            raise Cancelled(str(error)) from error
        raise

    def store() -> dict[str, Any]:
        for share, plan in zip(shares, found.plans, strict=True):
            run = PlanRun(
                cluster_id=mix.cluster_id,
                model_id=share.model_id,
                problem=share.problem,
                options=_options_beside(mix, plan, found.plans),
                created_by_id=mix.created_by_id,
                mix=mix,
            )
            incumbents.record_finished_run(run, plan, now=timezone.now())
        return {}

    return Outcome(
        columns={
            "level_tokens_per_s": found.level_tokens_per_s,
            "level_bound_tokens_per_s": found.level_bound_tokens_per_s,
        },
        store=store,
    )


def _options_beside(
    mix: ModelMix, plan: domain.Plan, plans: Sequence[domain.Plan]
) -> dict[str, Any]:
    """The mix's options, with the other models' nodes left to them."""
    options = options_from_json(mix.options)
    others = {name for other in plans if other is not plan for name in other.placement.layers}
    rules = replace(options.rules, excluded_nodes=options.rules.excluded_nodes | others)
    return options_to_json(replace(options, rules=rules))
