"""Replanning: from a running plan to one for the current cluster, moving few bytes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

import planner
from helixweb.common.refusals import Conflict
from helixweb.inventory.models import NodeState
from helixweb.inventory.node_list import in_state
from helixweb.inventory.services.problems import build_problem
from helixweb.planning import incumbents
from helixweb.planning.models import Plan, PlanRun, Replan
from helixweb.planning.options import options_from_json, options_to_json
from helixweb.planning.services.starting import queue_run
from helixweb.planning.stored import running_options, stored_plan, stored_problem
from planner.serialization import problem_from_dict, problem_to_dict


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
