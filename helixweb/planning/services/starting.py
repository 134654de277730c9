"""Starts plan runs: on the inventory as it is now, around a running plan, moving few bytes, or on
from where a run ended."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

import planner
from helixweb.common import events, jobs
from helixweb.common.refusals import Conflict
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Cluster, LanguageModel, NodeState
from helixweb.inventory.node_list import in_state
from helixweb.inventory.services.problems import build_problem
from helixweb.inventory.signals import profiles_missing
from helixweb.planning import incumbents
from helixweb.planning.models import Plan, PlanRun, Replan
from helixweb.planning.options import options_from_json, options_to_json
from helixweb.planning.stored import running_options, stored_plan, stored_problem
from helixweb.planning.what_if import Edits, edited
from planner.serialization import problem_from_dict, problem_to_dict


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


def start_replan(
    plan: Plan, *, options: planner.PlanOptions, budget_bytes: float | None, user: Any
) -> PlanRun:
    """Queue a search around the plan, on the inventory as it is now.

    At most `budget_bytes` of layers may be loaded (None: any number).
    Raises InvalidProblem, InvalidRules, InvalidOptions and ModelDoesNotFit, before anything is
    written.
    """
    planner.ReplanOptions(
        plan=options, time_limit_s=options.time_limit_s, budget_bytes=budget_bytes
    )
    problem = _problem_now(plan)
    planner.check_rules(problem, options.rules)
    columns = {"cluster": plan.cluster, "model": plan.model, "created_by": user}
    with transaction.atomic():
        run = queue_run(problem_to_dict(problem), options, **columns)
        Replan.objects.create(run=run, running_plan=plan, budget_bytes=budget_bytes)
    return run


def objective_of(plan: Plan) -> dict[str, Any]:
    """The options that say what the plan was made for."""
    options = running_options(plan)
    names = ("objective", "ttft_limit_s", "tpot_limit_s", "limit_percentile", "demand_tokens_per_s")
    return {name: getattr(options, name) for name in names}


def unmoved(plan: Plan, *, now: datetime) -> dict[str, Any]:
    """Changes since the plan was computed, and its value with new weights only.

    `search` has the options of its search, without silent nodes. `planned` is the value of its
    objective when it was computed, `value` the current one. Raises InvalidProblem, InvalidRules,
    InvalidOptions and ModelDoesNotFit.
    """
    before, after = stored_problem(plan), _problem_now(plan)
    names, names_now = ({node.name for node in one.cluster.nodes} for one in (before, after))
    lost = plan.cluster.nodes.filter(in_state(NodeState.LOST, now=now))
    silent = set(lost.values_list("name", flat=True))
    apart = {
        "gone": sorted(names - names_now),
        "added": sorted(names_now - names),
        "silent": sorted(silent),
    }
    search = running_options(plan)
    rules = search.rules.about(names_now - silent)
    rules = replace(rules, excluded_nodes=rules.excluded_nodes | silent)
    search, running = replace(search, rules=rules), stored_plan(plan)
    flow, value = running.flow.value_tokens_per_s, _planned_value(running, search.objective)
    found = {"planned": flow if value is None else value, "search": search}
    if silent or before != after:
        asked = json.dumps([problem_to_dict(after), options_to_json(search)])
        flow, value = _worth(plan.pk, plan.created_at, asked)
    return {
        **apart,
        **found,
        "changes": list(_sentences(before, after, **apart)),
        "flow_tokens_per_s": flow,
        "objective": search.objective,
        "objective_value": value,
        "value": flow if value is None else value,
    }


def _planned_value(plan: planner.Plan, objective: str) -> float | None:
    """The estimate for decode throughput; for other objectives the stored value; None for flow."""
    if plan.forecast is None or objective == "flow":
        return None
    is_decode = objective == "decode"
    return plan.forecast.estimated.decode_tokens_per_s if is_decode else plan.forecast.value


# An estimate for a thousand nodes takes a second.
@lru_cache(maxsize=16)
def _worth(pk: int, created_at: datetime, asked: str) -> tuple[float, float | None]:
    """Flow and value of a plan's placement on a problem, under options."""
    problem, options = json.loads(asked)
    row = Plan.unscoped.get(pk=pk, created_at=created_at)
    score = planner.unmoved_score(
        problem_from_dict(problem),
        stored_plan(row).placement,
        options=options_from_json(options),
    )
    return score.flow_tokens_per_s, score.objective_value


def adopt_point(run: PlanRun, number: int, *, user: Any) -> PlanRun:
    """Make a finished run whose plan is answer `number` (from 0) of a replanning.

    Raises Conflict if there is no such answer, or it carries no flow.
    """
    asked: Replan | None = getattr(run, "replan", None)
    if asked is None or not asked.points:
        raise Conflict(
            _("Plan run %(id)s has no answers to choose from; replan a plan first.")
            % {"id": run.pk}
        )
    if not 0 <= number < len(asked.points):
        raise Conflict(
            _("There is no answer %(number)s; plan run %(id)s has 0 to %(count)s.")
            % {"number": number, "id": run.pk, "count": len(asked.points) - 1}
        )
    point = asked.points[number]
    if point["flow_tokens_per_s"] <= 0:
        raise Conflict(
            _("Answer %(number)s carries no flow; choose one that does.") % {"number": number}
        )
    problem, options = problem_from_dict(run.problem), options_from_json(run.options)
    placement = incumbents.placement_of_point(point)
    plan = incumbents.plan_of(
        problem,
        placement,
        options=options,
        upper_bound_tokens_per_s=run.upper_bound_tokens_per_s or float("inf"),
        placer=point["method"],
        is_cancelled=False,
        elapsed_s=0.0,
    )
    forecast = planner.estimated_forecast(problem, placement, options=options)
    with transaction.atomic():
        adopted = incumbents.record_finished_run(
            PlanRun(
                cluster_id=run.cluster_id,
                model_id=run.model_id,
                problem=run.problem,
                options=run.options,
                continues=run,
                created_by=user,
            ),
            replace(plan, forecast=forecast),
            now=timezone.now(),
        )
        Replan.objects.create(
            run=adopted,
            running_plan_id=asked.running_plan_id,
            budget_bytes=point["moved_bytes"],
            points=asked.points,
        )
    return adopted


def _problem_now(plan: Plan) -> planner.Problem:
    """The problem of the current cluster. Raises InvalidOptions if the model's layers changed.
    Instances need no engine for stages."""
    stored = stored_plan(plan)
    problem = build_problem(plan.cluster, plan.model, is_for_stages=not stored.instances)
    if stored.num_layers != problem.model.num_layers:
        raise planner.InvalidOptions(
            _(
                "plan %(id)s places %(placed)s layers but model %(name)s has "
                "%(num_layers)s now; compute a new plan"
            )
            % {
                "id": plan.pk,
                "placed": stored.num_layers,
                "name": repr(problem.model.name),
                "num_layers": problem.model.num_layers,
            }
        )
    return problem


def _sentences(
    before: planner.Problem,
    after: planner.Problem,
    *,
    gone: Sequence[str],
    added: Sequence[str],
    silent: Sequence[str],
) -> Iterator[str]:
    for text, names in (
        (_("Gone since the plan was computed: %(names)s."), gone),
        (_("New since the plan was computed: %(names)s."), added),
        (_("Silent now: %(names)s."), silent),
    ):
        if names:
            yield text % {"names": ", ".join(names)}
    if before.compute_profiles != after.compute_profiles:
        yield _("Profiles have changed.")
    kept_before = [node for node in before.cluster.nodes if node.name not in gone]
    kept_after = [node for node in after.cluster.nodes if node.name not in added]
    if sorted(kept_before, key=str) != sorted(kept_after, key=str):
        yield _("The region or the profile of a node has changed.")
    if before.cluster.region_links != after.cluster.region_links:
        yield _("Links between regions have changed.")
    away = {*gone, *added}
    links_before = [link for link in before.cluster.links if not away & {link.source, link.target}]
    links_after = [link for link in after.cluster.links if not away & {link.source, link.target}]
    if links_before != links_after:
        yield _("Links of nodes that stayed have changed.")
    if before.workload != after.workload:
        yield _("The workload has changed.")
