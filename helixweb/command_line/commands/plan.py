"""`helixweb plan`: search for placements, look at them, compare them, go on from them; studies, and
plans of several models."""

import contextlib
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from helixweb.client import NotFound
from helixweb.command_line.command import Verbs, site_options
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import (
    Count,
    Positive,
    Seconds,
    index,
    not_negative,
    positive,
    whole_number,
)
from helixweb.command_line.output import (
    Cells,
    columns,
    duration,
    number,
    pairs,
    percent,
    rows_table,
    table,
    written,
)
from helixweb.command_line.plan_runs import searched, show_plan, show_plan_of
from helixweb.command_line.resolve import (
    cluster_named,
    model_named,
    model_of_cluster,
    names_of,
    within,
)
from helixweb.command_line.session import Row, Session, given, once_each
from helixweb.command_line.waiting import failure, finished, follow, is_over, waiting_for
from planner import PlanOptions

T = TypeVar("T")
BYTES_PER_S_OF_GBIT, MS_PER_S = 1e9 / 8, 1e3
BYTES_PER_GB = 1e9
_DECODE = "decode tokens/s (estimated)"
_UNITS = {"flow": "tokens/s of flow", "decode": _DECODE, "latency": _DECODE}
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


@plan()
def _what_if(
    site: Session,
    plan: Count,
    *,
    without: Sequence[str] = (),
    add: Sequence[tuple[str, str, str]] = (),
    upgrade: Sequence[tuple[str, str]] = (),
    link: Sequence[tuple[str, str, str, str]] = (),
    search: Seconds | None = None,
    no_wait: bool = False,
) -> int | None:
    """What a plan is worth on a changed copy of its cluster.

    --without NODE: take this node away
    --add COUNT PROFILE REGION: so many nodes more
    --upgrade NODE PROFILE: give a node another profile
    --link FROM TO GBIT_PER_S LATENCY_MS: make a link of nodes or regions so, one way
    --search S: search on the copy as well, so long
    """
    changes = {
        "removed": without,
        "added": [
            {"count": _read(whole_number, count), "profile": profile, "region": region}
            for count, profile, region in add
        ],
        "upgraded": once_each(upgrade, "--upgrade"),
        "links": [
            {
                "source": source,
                "target": target,
                "bandwidth_bytes_per_s": _read(positive, gbit) * BYTES_PER_S_OF_GBIT,
                "latency_s": _read(not_negative, latency_ms) / MS_PER_S,
            }
            for source, target, gbit, latency_ms in link
        ],
    }
    body: Row = {name: value for name, value in changes.items() if value}
    if not body:
        raise BadUsage("say what to change: --without, --add, --upgrade, --link")
    if search is not None:
        body["options"] = {"time_limit_s": search}
    answer = site.do(site.client.plans, "what-if", plan, body)
    if answer["run"] is None:
        site.show(answer, _worths(answer))
        return None
    if not site.as_json:
        site.around.say(_worths(answer))
    return searched(site, site.client.plan_runs.get(answer["run"]), no_wait=no_wait)


def _read(parse: Callable[[str], T], text: str) -> T:
    """Parse one value of an option with several values, which argparse does not parse."""
    try:
        return parse(text)
    except ArgumentTypeError as error:
        raise BadUsage(str(error)) from error


def _worths(answer: Row) -> str:
    rows = {
        "nodes used": "nodes_used",
        "flow, tokens/s": "flow_tokens_per_s",
        "bound, tokens/s": "upper_bound_tokens_per_s",
        "decode, tokens/s": "decode_tokens_per_s",
        "TTFT": "ttft_s",
        "TPOT": "tpot_s",
        "price per hour": "price_per_hour",
    }
    sides = (answer["before"], answer["after"])
    lines = [(title, *(written(name, one) for one in sides)) for title, name in rows.items()]
    return table(("", "BEFORE", "AFTER"), lines)


@plan()
def _simulate(
    site: Session,
    plan: Count,
    *,
    workload: str | None = None,
    share: Positive | None = None,
    burst_size: Count | None = None,
    policy: str | None = None,
    no_wait: bool = False,
) -> None:
    """What a plan would deliver.

    --workload: backlog (default), poisson or bursts
    --share: of the plan's peak; not for a backlog
    --burst-size: requests that come at once
    --policy: runtime (default) or published
    """
    body = given(plan=plan, workload=workload, share=share, burst_size=burst_size, policy=policy)
    simulations = site.client.simulations
    made = site.create(simulations, body)
    row = finished(site, "simulation", simulations, made, no_wait=no_wait)
    if row is None:
        return
    if row["status"] != "succeeded":
        raise failure("simulation", row)
    forecast = row["forecast"]
    lines = [
        ("simulation", row["id"]),
        ("decode", f"{number(forecast['decode_tokens_per_s'])} tokens/s"),
        ("prompts", f"{number(forecast['prompt_tokens_per_s'])} tokens/s"),
        *((name.upper(), _spread(forecast[name])) for name in ("ttft", "tpot", "e2e")),
        ("nodes busy", percent(forecast["utilisation_mean"])),
    ]
    site.show(row, pairs(lines))


def _spread(times: dict[str, float | None]) -> str:
    return f"p50 {duration(times['p50_s'])}, p95 {duration(times['p95_s'])}"


@plan(site_options(PlanOptions, "time_limit_s", "objective"))
def _mix(
    site: Session,
    *,
    cluster: str | None = None,
    model: Sequence[str],
    no_wait: bool = False,
    **options: Any,
) -> None:
    """A plan for each of several models.

    --model MODEL[=WEIGHT]: name or id, and its share (1); two or more
    """
    mixes = site.client.model_mixes
    body = given(
        cluster=cluster_named(site, cluster)["id"],
        models=[_weighed(site, word) for word in model],
        options=options or None,
    )
    made = site.create(mixes, body)
    row = finished(site, "mix", mixes, made, no_wait=no_wait, can_cancel=True)
    if row is None:
        return
    if row["status"] == "failed":
        raise failure("mix", row)
    runs = [site.client.plan_runs.get(run) for run in row["runs"]]
    models = names_of(site.client.models)
    cells: Cells = {
        "MODEL": lambda run: models.get(run["model"]),
        "RUN": "id",
        "PLAN": "plan",
        "FLOW": "flow_tokens_per_s",
        "OBJECTIVE": "objective_value",
    }
    site.show(row, f"mix {row['id']} {row['status']}\n\n{rows_table(cells, runs)}")


def _weighed(site: Session, word: str) -> Row:
    name, equals, weight = word.rpartition("=")
    if not equals:
        return {"model": model_named(site, word)["id"]}
    return {"model": model_named(site, name)["id"], "weight": _read(positive, weight)}
