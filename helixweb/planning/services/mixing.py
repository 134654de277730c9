"""Plans several models on one cluster at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

import planner
from helixweb.common import events, jobs
from helixweb.common.jobs import Lease
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning import incumbents
from helixweb.planning.models import MixShare, ModelMix, PlanRun
from helixweb.planning.options import options_from_json, options_to_json
from planner import (
    InvalidProblem,
    InvalidRules,
    ModelShare,
    PlanOptions,
    check_rules,
    plan_models,
)
from planner.serialization import problem_from_dict, problem_to_dict

LEAST_MODELS = 2


def start_model_mix(
    *, cluster: Cluster, weights: Mapping[LanguageModel, float], options: PlanOptions, user: Any
) -> ModelMix:
    """Queue a plan for each model, served by the weights, on the inventory as it is.

    Raises InvalidProblem, InvalidRules and ModelDoesNotFit, before anything is written.
    """
    if len(weights) < LEAST_MODELS:
        raise InvalidProblem(
            _("%(count)s models are no mix; choose %(least_models)s or more")
            % {"count": len(weights), "least_models": LEAST_MODELS}
        )
    if options.rules.pinned:
        raise InvalidRules(
            _(
                "node %(pinned)s is pinned, but several models share the cluster; pins "
                "work for one model only"
            )
            % {"pinned": repr(min(options.rules.pinned))}
        )
    shares = []
    for model, weight in weights.items():
        problem = build_problem(cluster, model)
        check_rules(problem, options.rules)
        shares.append((model, ModelShare(problem=problem, weight=weight)))
    with transaction.atomic():
        mix = ModelMix.objects.create(
            cluster=cluster, options=options_to_json(options), created_by=user
        )
        for model, share in shares:
            MixShare.objects.create(
                mix=mix, model=model, weight=share.weight, problem=problem_to_dict(share.problem)
            )
        names = ", ".join(model.name for model in weights)
        said = sentence(
            gettext_noop("%(user)s started a mix of %(names)s."), user=str(user), names=names
        )
        events.emit(f"cluster:{cluster.pk}", "event", said)
        jobs.wake(mix)
    return mix


def plan_mix(mix: ModelMix, lease: Lease) -> jobs.Outcome:
    """The job: plan the mix's models at once; a finished run is stored for each."""
    shares = list(mix.shares.order_by("pk"))
    found = plan_models(
        tuple(
            ModelShare(problem=problem_from_dict(share.problem), weight=share.weight)
            for share in shares
        ),
        options=options_from_json(mix.options),
        cancel=lease,
    )

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

    return jobs.Outcome(
        columns={
            "level_tokens_per_s": found.level_tokens_per_s,
            "level_bound_tokens_per_s": found.level_bound_tokens_per_s,
        },
        store=store,
    )


def _options_beside(
    mix: ModelMix, plan: planner.Plan, plans: Sequence[planner.Plan]
) -> dict[str, Any]:
    """The mix's options, with the other models' nodes left to them."""
    options = options_from_json(mix.options)
    others = {name for other in plans if other is not plan for name in other.placement.layers}
    rules = replace(options.rules, excluded_nodes=options.rules.excluded_nodes | others)
    return options_to_json(replace(options, rules=rules))
