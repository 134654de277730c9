"""Starts the planning of several models on one cluster."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events, jobs
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning.models import MixShare, ModelMix
from helixweb.planning.options import options_to_json
from planner.domain.errors import InvalidProblem
from planner.domain.rules import InvalidRules
from planner.feasibility import check_rules
from planner.multi_model import ModelShare
from planner.plan_options import PlanOptions
from planner.serialization import problem_to_dict

LEAST_MODELS = 2


def start_model_mix(
    *, cluster: Cluster, weights: Mapping[LanguageModel, float], options: PlanOptions, user: Any
) -> ModelMix:
    """Queue a plan for each model, flows in proportion to the weights, on the inventory as it is.

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
