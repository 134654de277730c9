"""`helixweb plan`: search for placements, look at them, compare them, study them."""

import argparse
import contextlib
import uuid

from helixweb.client import NotFound, Row
from helixweb.command_line import exit_codes
from helixweb.command_line.commands import plan_again, plan_studies
from helixweb.command_line.completion_words import cluster_names, model_names, node_names
from helixweb.command_line.output import gain, moment, number, percent, table
from helixweb.command_line.plan_runs import FINISHED, POLL_S, searched, show_plan, waiting_option
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import CommandFailed
from helixweb.command_line.resolve import cluster_named, model_of_cluster
from helixweb.command_line.session import (
    Session,
    connection_options,
    given,
    run_action,
    seconds,
    whole_number,
)
from helixweb.command_line.site_options import add_site_options, options_given
from helixweb.command_line.waiting import waiting_for
from planner.plan_options import PlanOptions

run = run_action


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("plan", help=COMMANDS["plan"][1])
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = [connection_options()]
    _add_compute(actions.add_parser("compute", help="search for a plan", parents=common))
    listing = actions.add_parser("list", help="plans and runs, the newest first", parents=common)
    completed_by(listing.add_argument("--cluster"), cluster_names)
    listing.add_argument("--runs", action="store_true", help="searches instead of plans")
    listing.add_argument("--limit", type=whole_number, default=20)
    listing.set_defaults(act=_list)
    show = actions.add_parser("show", help="one plan: its figures and layers", parents=common)
    show.add_argument("plan", type=whole_number)
    show.set_defaults(act=_show)
    cancel = actions.add_parser("cancel", help="end a search, keep the best", parents=common)
    cancel.add_argument("run_id", type=whole_number, metavar="run")
    cancel.set_defaults(act=_cancel)
    explain = actions.add_parser("explain", help="what limits a plan", parents=common)
    explain.add_argument("plan", type=whole_number)
    explain.add_argument("--again", action="store_true", help="though it was explained before")
    explain.add_argument(
        "--search", type=seconds, metavar="S", help="explain anew, searching so long for each kind"
    )
    explain.set_defaults(act=_explain)
    compare = actions.add_parser("compare", help="two to four plans", parents=common)
    compare.add_argument("plans", type=whole_number, nargs="+", metavar="plan")
    compare.set_defaults(act=_compare)
    plan_again.add_parsers(actions, common)
    plan_studies.add_parsers(actions, common)
    return parser


def _add_compute(parser: argparse.ArgumentParser) -> None:
    completed_by(parser.add_argument("--cluster", help="its name or id"), cluster_names)
    completed_by(parser.add_argument("--model", help="its name or id"), model_names)
    names = ("time_limit_s", "objective", "placer", "method", "backend", "tensor_parallel")
    add_site_options(parser, PlanOptions, *names)
    without = parser.add_argument(
        "--without", action="append", metavar="NODE", help="place no layers on this node"
    )
    completed_by(without, node_names)
    parser.add_argument("--start-plan", type=whole_number, help="search on from this plan")
    parser.add_argument("--survive-one-loss", action="store_true")
    waiting_option(parser)
    parser.set_defaults(act=_compute)


def _compute(site: Session, arguments: argparse.Namespace) -> int:
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
    run = site.client.plan_runs.create(body, idempotency_key=str(uuid.uuid4()))
    return searched(site, run, no_wait=arguments.no_wait)


def _list(site: Session, arguments: argparse.Namespace) -> int:
    clusters = {one["id"]: one["name"] for one in site.client.clusters.all()}
    models = {one["id"]: one["name"] for one in site.client.models.all()}
    limit = arguments.limit
    cluster = cluster_named(site.client, arguments.cluster)["id"] if arguments.cluster else None
    if arguments.runs:
        runs = list(site.client.plan_runs.all(limit=limit, cluster=cluster))
        columns = ("RUN", "CLUSTER", "MODEL", "STATUS", "FLOW", "BOUND", "GAP", "PLAN")
        lines = [
            (
                one["id"], clusters.get(one["cluster"]), models.get(one["model"]), one["status"],
                number(one["flow_tokens_per_s"]), number(one["upper_bound_tokens_per_s"]),
                percent(one["gap"]), one["plan"],
            )
            for one in runs
        ]  # fmt: skip
        site.show(runs, table(columns, lines))
        return exit_codes.OK
    plans = list(site.client.plans.all(limit=limit, cluster=cluster))
    columns = ("PLAN", "CLUSTER", "MODEL", "FLOW", "BOUND", "GAP", "HOPS", "MADE")
    told = [
        (
            one["id"], clusters.get(one["cluster"]), models.get(one["model"]),
            number(one["flow_tokens_per_s"]), number(one["upper_bound_tokens_per_s"]),
            percent(one["gap"]), number(one["hops"], digits=2), moment(one["created_at"]),
        )
        for one in plans
    ]  # fmt: skip
    site.show(plans, table(columns, told))
    return exit_codes.OK


def _show(site: Session, arguments: argparse.Namespace) -> int:
    show_plan(site, site.client.plans.get(arguments.plan))
    return exit_codes.OK


def _cancel(site: Session, arguments: argparse.Namespace) -> int:
    run = site.client.plan_runs.do("cancel", arguments.run_id)
    site.show(run, f"plan run {run['id']} ends; the best plan so far is kept")
    return exit_codes.OK


def _explain(site: Session, arguments: argparse.Namespace) -> int:
    answer = _explanation(site, arguments)
    with waiting_for("working the explanation out", site.around):
        while answer["status"] not in FINISHED:
            site.around.sleep(POLL_S)
            answer = site.client.plans.read("explanation", arguments.plan)
    if answer["status"] == "failed":
        raise CommandFailed(f"the explanation of plan {arguments.plan} failed: {answer['error']}")
    lines = [*answer["limits"]]
    if answer["survival_tokens_per_s"] is not None:
        left = number(answer["survival_tokens_per_s"])
        lines.append(f"Without {answer['worst_node']}, the worst to lose, {left} tokens/s are left")
    rows = [
        (
            one["resource"],
            gain(one["gain"]),
            number(one["kept_tokens_per_s"]),
            number(one["replanned_tokens_per_s"]),
        )
        for one in answer["values"]
    ]
    if rows:
        columns = ("ONE MORE", "GAIN", "LAYERS KEPT TOKENS/S", "REPLANNED TOKENS/S")
        lines += ["", table(columns, rows)]
    site.show(answer, "\n".join(lines))
    return exit_codes.OK


def _explanation(site: Session, arguments: argparse.Namespace) -> Row:
    """The plan's explanation, or a new one."""
    if not arguments.again and arguments.search is None:
        with contextlib.suppress(NotFound):
            there: Row = site.client.plans.read("explanation", arguments.plan)
            return there
    made: Row = site.client.plans.do(
        "explanation",
        arguments.plan,
        given(search_s=arguments.search),
        idempotency_key=str(uuid.uuid4()),
    )
    return made


def _compare(site: Session, arguments: argparse.Namespace) -> int:
    answer = site.client.plans.read("compare", plan=arguments.plans)
    rows = [
        (
            one["plan"], number(one["flow_tokens_per_s"]), percent(one["gap"]),
            number(one["hops"], digits=2),
            number((one["moved_bytes"] or 0) / 2**30, digits=2) if one["moved_bytes"] else None,
        )
        for one in answer["plans"]
    ]  # fmt: skip
    text = table(("PLAN", "FLOW", "GAP", "HOPS", "MOVED GIB"), rows)
    differing = [(one["node"], *one["layers"]) for one in answer["nodes"] if one["differs"]]
    if differing:
        columns = ("NODE", *(f"PLAN {one['plan']}" for one in answer["plans"]))
        text += "\n\n" + table(columns, differing)
    site.show(answer, text)
    return exit_codes.OK
