"""`helixweb plan`: search for placements, look at them, compare them, go on from them."""

import contextlib
from collections.abc import Sequence
from typing import Annotated, Any

from helixweb.client import NotFound
from helixweb.command_line.command import Verbs, site_options
from helixweb.command_line.commands import plan_studies
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.numbers import Count, Seconds, index, not_negative
from helixweb.command_line.output import Cells, columns, number, rows_table, table
from helixweb.command_line.plan_runs import searched, show_plan, show_plan_of
from helixweb.command_line.resolve import cluster_named, model_of_cluster, names_of, within
from helixweb.command_line.session import Session, given
from helixweb.command_line.waiting import follow, is_over, waiting_for
from planner import PlanOptions

BYTES_PER_GB = 1e9
_DECODE = "decode tokens/s (estimated)"
_UNITS = {"flow": "tokens/s of flow", "decode": _DECODE, "latency": _DECODE}
_TIME_LIMIT = site_options(PlanOptions, "time_limit_s")
plan = Verbs()


@plan(
    site_options(
        PlanOptions,
        "time_limit_s", "objective", "placer", "method", "backend", "tensor_parallel",
    )
)  # fmt: skip
def _compute(
    site: Session,
    *,
    cluster: str | None = None,
    model: str | None = None,
    without: Sequence[str] = (),
    start_plan: Count | None = None,
    survive_one_loss: bool = False,
    no_wait: bool = False,
    **options: Any,
) -> int:
    """Search for a plan.

    --without NODE: place no layers on this node
    --start-plan: search on from this plan
    """
    row = cluster_named(site, cluster)
    if without:
        options["rules"] = {"excluded_nodes": without}
    body = given(
        cluster=row["id"],
        model=model_of_cluster(site, model, row)["id"],
        options=options,
        start_plan=start_plan,
        survive_one_loss=survive_one_loss or None,
    )
    return searched(site, site.create(site.client.plan_runs, body), no_wait=no_wait)


@plan()
def _list(
    site: Session, *, cluster: str | None = None, runs: bool = False, limit: Count = 20
) -> None:
    """Plans and runs, the newest first.

    --runs: searches instead of plans
    """
    clusters, models = names_of(site.client.clusters), names_of(site.client.models)
    asked = site.client.plan_runs if runs else site.client.plans
    cells: Cells = {
        "RUN" if runs else "PLAN": "id",
        "CLUSTER": lambda row: clusters.get(row["cluster"]),
        "MODEL": lambda row: models.get(row["model"]),
        **columns("status" if runs else ""),
        **columns("flow_tokens_per_s upper_bound_tokens_per_s gap"),
        **columns("plan" if runs else "hops created_at"),
    }
    site.show_rows(list(asked.all(limit=limit, cluster=within(site, cluster))), cells)


@plan()
def _show(site: Session, plan: Count) -> None:
    """One plan: its figures and layers."""
    show_plan(site, plan)


@plan()
def _cancel(site: Session, run: Count) -> None:
    """End a search, keep the best."""
    row = site.client.plan_runs.do("cancel", run)
    site.show(row, f"plan run {run} ends; the best plan so far is kept")


@plan()
def _accept(site: Session, run: Count) -> None:
    """End a search with the best so far, as a success."""
    row = site.client.plan_runs.do("accept", run)
    site.show(row, f"plan run {run} ends with the best plan so far")


@plan()
def _explain(
    site: Session, plan: Count, *, again: bool = False, search: Seconds | None = None
) -> None:
    """What limits a plan.

    --again: though it was explained before
    --search S: explain again, searching so long for each kind
    """
    plans, answer = site.client.plans, None
    if not again and search is None:
        with contextlib.suppress(NotFound):
            answer = plans.read("explanation", plan)
    answer = answer or site.do(plans, "explanation", plan, given(search_s=search))
    with waiting_for("working the explanation out", site.around):
        answer = follow(site, answer, lambda: plans.read("explanation", plan), ended=is_over)
    if answer["status"] == "failed":
        raise CommandFailed(f"the explanation of plan {plan} failed: {answer['error']}")
    lines = [*answer["limits"]]
    unit = _UNITS.get(answer["objective"], f"of {answer['objective']}")
    if answer["survival_tokens_per_s"] is not None:
        left = number(answer["survival_tokens_per_s"])
        lines.append(f"Without {answer['worst_node']}, the worst to lose, {left} {unit} are left")
    if answer["values"]:
        cells: Cells = {
            "ONE MORE": "resource",
            "GAIN": lambda one: f"{100 * one['gain']:+.1f} %",
            "LAYERS KEPT": "kept_tokens_per_s",
            "REPLANNED": "replanned_tokens_per_s",
        }
        lines += ["", f"In {unit}:", rows_table(cells, answer["values"])]
    site.show(answer, "\n".join(lines))


@plan()
def _compare(site: Session, plans: Sequence[Count]) -> None:
    """Two to four plans."""
    answer = site.client.plans.read("compare", plan=plans)
    cells: Cells = {
        **columns("plan flow_tokens_per_s gap hops"),
        "MOVED GIB": lambda one: (
            number(one["moved_bytes"] / 2**30, digits=2) if one["moved_bytes"] else None
        ),
    }
    text = rows_table(cells, answer["plans"])
    differing = [(one["node"], *one["layers"]) for one in answer["nodes"] if one["differs"]]
    if differing:
        titles = ("NODE", *(f"PLAN {one['plan']}" for one in answer["plans"]))
        text += "\n\n" + table(titles, differing)
    site.show(answer, text)


@plan()
def _extend(site: Session, run: Count, *, time_limit: Seconds = 60.0, no_wait: bool = False) -> int:
    """Search on from where a run ended, on the same problem.

    --time-limit S: so much longer (60)
    """
    row = site.do(site.client.plan_runs, "extend", run, {"seconds": time_limit})
    return searched(site, row, no_wait=no_wait)


@plan(site_options(PlanOptions, "time_limit_s", "objective"))
def _replan(
    site: Session,
    plan: Count,
    *,
    budget_gb: Annotated[float, not_negative] | None = None,
    no_wait: bool = False,
    **options: Any,
) -> int:
    """Search around a plan on the cluster as it is now.

    --budget-gb GB: most that nodes may load again; 0: nothing (default: as much as it takes)
    """
    budget = None if budget_gb is None else budget_gb * BYTES_PER_GB
    body = given(budget_bytes=budget, options=options or None)
    return searched(site, site.do(site.client.plans, "replan", plan, body), no_wait=no_wait)


@plan()
def _answers(site: Session, run: Count) -> None:
    """What a replanning found: values for bytes moved."""
    found = site.client.plan_runs.read("replan", run)
    points = [{"answer": at, **point} for at, point in enumerate(found["points"])]
    cells: Cells = {
        **columns("answer flow_tokens_per_s objective_value"),
        "MOVED GB": lambda one: number(one["moved_bytes"] / BYTES_PER_GB, digits=3),
        "BY": "method",
    }
    site.show(found, rows_table(cells, points))


@plan()
def _adopt(site: Session, run: Count, answer: Annotated[int, index]) -> None:
    """Make a plan of another answer of a replanning.

    answer: as `plan answers` numbers them, from 0
    """
    show_plan_of(site, site.do(site.client.plan_runs, "adopt", run, {"point": answer}))


plan.actions.update(plan_studies.verbs.actions)
