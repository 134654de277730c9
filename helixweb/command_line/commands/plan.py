"""`helixweb plan`: search for placements, look at them, compare them, go on from them."""

import contextlib
from argparse import Namespace

from helixweb.client import NotFound, Row
from helixweb.command_line.command import CLUSTER, Verbs, argument, options_given, site_options
from helixweb.command_line.commands import plan_studies
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.numbers import index, not_negative, seconds, whole_number
from helixweb.command_line.output import Cells, columns, number, rows_table, table
from helixweb.command_line.plan_runs import NO_WAIT, finished, searched, show_plan, show_plan_of
from helixweb.command_line.resolve import cluster_named, model_of_cluster
from helixweb.command_line.session import Session, given
from helixweb.command_line.waiting import waiting_for
from planner.plan_options import PlanOptions

BYTES_PER_GB = 1e9
_PLAN = argument("plan", type=whole_number)
_RUN = argument("run_id", type=whole_number, metavar="run")
plan = Verbs()


@plan(
    "compute",
    "search for a plan",
    CLUSTER,
    argument("--model", help="its name or id", complete="models"),
    site_options(
        PlanOptions,
        "time_limit_s", "objective", "placer", "method", "backend", "tensor_parallel",
    ),
    argument(
        "--without",
        action="append",
        metavar="NODE",
        help="place no layers on this node",
        complete="nodes",
    ),
    argument("--start-plan", type=whole_number, help="search on from this plan"),
    argument("--survive-one-loss", action="store_true"),
    NO_WAIT,
)  # fmt: skip
def _compute(site: Session, arguments: Namespace) -> int:
    cluster = cluster_named(site.client, arguments.cluster)
    model = model_of_cluster(site.client, arguments.model, cluster)
    options = options_given(arguments, PlanOptions)
    if arguments.without:
        options["rules"] = {"excluded_nodes": arguments.without}
    body = given(
        cluster=cluster["id"],
        model=model["id"],
        options=options,
        start_plan=arguments.start_plan,
        survive_one_loss=arguments.survive_one_loss or None,
    )
    return searched(site, site.create(site.client.plan_runs, body), arguments)


@plan(
    "list",
    "plans and runs, the newest first",
    argument("--cluster", complete="clusters"),
    argument("--runs", action="store_true", help="searches instead of plans"),
    argument("--limit", type=whole_number, default=20),
)
def _list(site: Session, arguments: Namespace) -> None:
    clusters = {one["id"]: one["name"] for one in site.client.clusters.all()}
    models = {one["id"]: one["name"] for one in site.client.models.all()}
    cluster = cluster_named(site.client, arguments.cluster)["id"] if arguments.cluster else None
    asked = site.client.plan_runs if arguments.runs else site.client.plans
    places: Cells = {
        "CLUSTER": lambda row: clusters.get(row["cluster"]),
        "MODEL": lambda row: models.get(row["model"]),
    }
    figures = columns("flow_tokens_per_s upper_bound_tokens_per_s gap")
    cells = (
        {"RUN": "id", **places, **columns("status"), **figures, **columns("plan")}
        if arguments.runs
        else {"PLAN": "id", **places, **figures, **columns("hops created_at")}
    )
    site.show_rows(list(asked.all(limit=arguments.limit, cluster=cluster)), cells)


@plan("show", "one plan: its figures and layers", _PLAN)
def _show(site: Session, arguments: Namespace) -> None:
    show_plan(site, site.client.plans.get(arguments.plan))


@plan("cancel", "end a search, keep the best", _RUN)
def _cancel(site: Session, arguments: Namespace) -> None:
    run = site.client.plan_runs.do("cancel", arguments.run_id)
    site.show(run, f"plan run {run['id']} ends; the best plan so far is kept")


@plan(
    "explain",
    "what limits a plan",
    _PLAN,
    argument("--again", action="store_true", help="though it was explained before"),
    argument(
        "--search", type=seconds, metavar="S", help="explain again, searching so long for each kind"
    ),
)
def _explain(site: Session, arguments: Namespace) -> None:
    answer = _explanation(site, arguments)
    with waiting_for("working the explanation out", site.around):
        answer = finished(
            site, answer, lambda: site.client.plans.read("explanation", arguments.plan)
        )
    if answer["status"] == "failed":
        raise CommandFailed(f"the explanation of plan {arguments.plan} failed: {answer['error']}")
    lines = [*answer["limits"]]
    if answer["survival_tokens_per_s"] is not None:
        left = number(answer["survival_tokens_per_s"])
        lines.append(f"Without {answer['worst_node']}, the worst to lose, {left} tokens/s are left")
    if answer["values"]:
        cells: Cells = {
            "ONE MORE": "resource",
            "GAIN": lambda one: f"{100 * one['gain']:+.1f} %",
            "LAYERS KEPT TOKENS/S": "kept_tokens_per_s",
            "REPLANNED TOKENS/S": "replanned_tokens_per_s",
        }
        lines += ["", rows_table(cells, answer["values"])]
    site.show(answer, "\n".join(lines))


def _explanation(site: Session, arguments: Namespace) -> Row:
    """The plan's explanation, or a new one."""
    plans = site.client.plans
    if not arguments.again and arguments.search is None:
        with contextlib.suppress(NotFound):
            there: Row = plans.read("explanation", arguments.plan)
            return there
    body = given(search_s=arguments.search)
    made: Row = site.do(plans, "explanation", arguments.plan, body)
    return made


@plan(
    "compare",
    "two to four plans",
    argument("plans", type=whole_number, nargs="+", metavar="plan"),
)
def _compare(site: Session, arguments: Namespace) -> None:
    answer = site.client.plans.read("compare", plan=arguments.plans)
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


@plan(
    "extend",
    "search on from where a run ended, on the same problem",
    _RUN,
    argument("--time-limit", type=seconds, default=60.0, metavar="S", help="so much longer (60)"),
    NO_WAIT,
)
def _extend(site: Session, arguments: Namespace) -> int:
    body = {"seconds": arguments.time_limit}
    run = site.do(site.client.plan_runs, "extend", arguments.run_id, body)
    return searched(site, run, arguments)


@plan("accept", "end a search with the best so far, as a success", _RUN)
def _accept(site: Session, arguments: Namespace) -> None:
    run = site.client.plan_runs.do("accept", arguments.run_id)
    site.show(run, f"plan run {run['id']} ends with the best plan so far")


@plan(
    "replan",
    "search around a plan on the cluster as it is now",
    _PLAN,
    site_options(PlanOptions, "time_limit_s"),
    argument(
        "--budget-gb",
        type=not_negative,
        metavar="GB",
        help="most that nodes may load again; 0: nothing (default: as much as it takes)",
    ),
    NO_WAIT,
)
def _replan(site: Session, arguments: Namespace) -> int:
    body: Row = {}
    if arguments.budget_gb is not None:
        body["budget_bytes"] = arguments.budget_gb * BYTES_PER_GB
    if options := options_given(arguments, PlanOptions):
        body["options"] = options
    return searched(site, site.do(site.client.plans, "replan", arguments.plan, body), arguments)


@plan("answers", "what a replanning found: flow for bytes moved", _RUN)
def _answers(site: Session, arguments: Namespace) -> None:
    found = site.client.plan_runs.read("replan", arguments.run_id)
    points = [{"answer": at, **point} for at, point in enumerate(found["points"])]
    cells: Cells = {
        **columns("answer flow_tokens_per_s"),
        "MOVED GB": lambda one: number(one["moved_bytes"] / BYTES_PER_GB, digits=3),
        "BY": "method",
    }
    site.show(found, rows_table(cells, points))


@plan(
    "adopt",
    "make a plan of another answer of a replanning",
    _RUN,
    argument("answer", type=index, help="as `plan answers` numbers them, from 0"),
)
def _adopt(site: Session, arguments: Namespace) -> None:
    body = {"point": arguments.answer}
    show_plan_of(site, site.do(site.client.plan_runs, "adopt", arguments.run_id, body))


plan.actions.update(plan_studies.verbs.actions)
