"""Starts plan runs: on the inventory as it is now, or on from where a run ended."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

import planner
from helixweb.common import events, jobs
from helixweb.common.refusals import Conflict
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.inventory.signals import profiles_missing
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_from_json, options_to_json
from helixweb.planning.stored import stored_problem
from helixweb.planning.what_if import Edits, edited
from planner.serialization import problem_to_dict


def start_plan_run(
    *,
    cluster: Cluster,
    model: LanguageModel,
    options: planner.PlanOptions,
    user: Any,
    survive_one_loss: bool = False,
    start_plan: Plan | None = None,
) -> PlanRun:
    """Queue a search on the inventory as it is now.

    With `survive_one_loss` it is for what is left of the objective when the worst node is lost, and
    the method must be pipelines. Raises InvalidProblem for an incomplete inventory, InvalidOptions,
    InvalidRules, ModelDoesNotFit and NoDegree, before anything is written.
    """
    if survive_one_loss and options.method != "pipelines":
        raise planner.InvalidOptions(
            _(
                "what survives a loss is known of pipelines only, not of %(method)s; choose the "
                "method 'pipelines', or do not ask to survive a loss"
            )
            % {"method": repr(options.method)}
        )
    if start_plan is not None and start_plan.cluster_id != cluster.pk:
        raise planner.InvalidOptions(
            _("plan %(id)s is of another cluster than %(name)s; begin with one of its own plans")
            % {"id": start_plan.pk, "name": repr(cluster.name)}
        )
    is_for_stages = options.method != "instances"
    problem = _problem(cluster, model, user, is_for_stages=is_for_stages)
    if options.method == "instances":
        planner.check_instances(
            planner.restricted_problem(problem, options.rules), degree=options.tensor_parallel
        )
    else:
        planner.check_rules(problem, options.rules)
    # Refuses an objective that the problem lacks something for: a price of a node.
    planner.goal_for(problem, options)
    return queue_run(
        problem_to_dict(problem),
        options,
        cluster=cluster,
        model=model,
        survive_one_loss=survive_one_loss,
        start_plan=start_plan,
        created_by=user,
    )


def compute_again(run: PlanRun, *, user: Any) -> PlanRun:
    """Queue a search with the options of `run` on the inventory as it is now.

    It begins with the plan of `run`, and drops its rules about nodes that are gone. Raises
    Conflict for a what-if, else as `start_plan_run`.
    """
    if run.what_if:
        raise Conflict(
            _("Plan run %(id)s is of a changed copy of the cluster; start a new plan.")
            % {"id": run.pk}
        )
    options = options_from_json(run.options)
    rules = options.rules.about(set(run.cluster.nodes.values_list("name", flat=True)))
    return start_plan_run(
        cluster=run.cluster,
        model=run.model,
        options=replace(options, rules=rules),
        user=user,
        survive_one_loss=run.survive_one_loss,
        start_plan=getattr(run, "plan", None) or run.start_plan,
    )


def _problem(
    cluster: Cluster, model: LanguageModel, user: Any, *, is_for_stages: bool
) -> planner.Problem:
    """The problem to plan. Raises InvalidProblem; then for a `user` nodes without a profile are
    measured."""
    try:
        return build_problem(cluster, model, is_for_stages=is_for_stages)
    except planner.InvalidProblem as error:
        if user is None:  # the site repairs, in a transaction that this error rolls back
            raise
        answers: Sequence[tuple[object, Any]] = profiles_missing.send(
            sender=Cluster, cluster=cluster, model=model, user=user, now=timezone.now()
        )
        names = [name for _receiver, answer in answers for name in answer]
        if not names:
            raise
        raise planner.InvalidProblem(
            _(
                "nodes without a profile for model %(model)s are measured for it now: %(nodes)s; "
                "compute the plan when they have been, which the page of the cluster shows"
            )
            % {"model": repr(model.name), "nodes": ", ".join(names)}
        ) from error


def start_what_if(plan: Plan, edits: Edits, *, options: planner.PlanOptions, user: Any) -> PlanRun:
    """Queue a search on a changed copy of the plan's problem, beginning with the plan.

    Raises InvalidProblem, InvalidRules and ModelDoesNotFit, before anything is written.
    """
    problem = edited(stored_problem(plan), edits)
    planner.check_rules(problem, options.rules)
    return queue_run(
        problem_to_dict(problem),
        options,
        cluster=plan.cluster,
        model=plan.model,
        what_if=edits.sentence,
        start_plan=plan,
        created_by=user,
    )


def extend_plan_run(run: PlanRun, *, seconds: float, user: Any) -> PlanRun:
    """Queue a run that continues where `run` ended, on the same problem and for `seconds` more.

    Its seed is the next one: with the same seed it would repeat the same search. Raises Conflict
    unless the run has ended with a plan to continue from.
    """
    if not run.is_finished:
        raise Conflict(
            _("Plan run %(id)s is %(status)s; only one that has ended is extended.")
            % {"id": run.pk, "status": _(run.status)}
        )
    if hasattr(run, "replan"):
        raise Conflict(
            _(
                "Plan run %(id)s searched around a running plan; replan again with more "
                "time, or start from its plan."
            )
            % {"id": run.pk}
        )
    if run.flow_tokens_per_s is None:
        raise Conflict(
            _("Plan run %(id)s found no placement to go on from; start a new run.") % {"id": run.pk}
        )
    options = options_from_json(run.options)
    options = replace(
        options, time_limit_s=seconds, seed=(options.seed + 1) % (planner.MAX_SEED + 1)
    )
    return queue_run(
        run.problem,
        options,
        cluster=run.cluster,
        model=run.model,
        survive_one_loss=run.survive_one_loss,
        what_if=run.what_if,
        continues=run,
        created_by=user,
    )


def queue_run(problem: dict[str, Any], options: planner.PlanOptions, **columns: Any) -> PlanRun:
    """Store a run with an event for the cluster's page, and wake a worker after commit."""
    with transaction.atomic():
        run = PlanRun.objects.create(problem=problem, options=options_to_json(options), **columns)
        said = sentence(
            gettext_noop("%(user)s started plan run %(id)s for %(model)s."),
            user=str(run.created_by or "HelixWeb"),
            id=run.pk,
            model=run.model.name,
        )
        events.emit(f"cluster:{run.cluster_id}", "event", said)
        jobs.wake(run)
    return run
