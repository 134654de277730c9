"""`helixweb plan extend`, `accept`, `replan`, `answers`, `adopt`: continue or repeat a search."""

import argparse
import uuid

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.output import number, table
from helixweb.command_line.plan_runs import searched, show_plan, waiting_option
from helixweb.command_line.registry import Subparsers
from helixweb.command_line.reporting import CommandFailed
from helixweb.command_line.session import (
    Session,
    not_negative,
    seconds,
    whole_number,
)
from helixweb.command_line.site_options import add_site_options, options_given
from planner.plan_options import PlanOptions

BYTES_PER_GB = 1e9


def add_parsers(actions: Subparsers, common: list[argparse.ArgumentParser]) -> None:
    extend = actions.add_parser(
        "extend", help="search on from where a run ended, on the same problem", parents=common
    )
    extend.add_argument("run_id", type=whole_number, metavar="run")
    extend.add_argument(
        "--time-limit", type=seconds, default=60.0, metavar="S", help="so much longer (60)"
    )
    waiting_option(extend)
    extend.set_defaults(act=_extend)
    accept = actions.add_parser(
        "accept", help="end a search with the best so far, as a success", parents=common
    )
    accept.add_argument("run_id", type=whole_number, metavar="run")
    accept.set_defaults(act=_accept)
    replan = actions.add_parser(
        "replan", help="search around a plan on the cluster as it is now", parents=common
    )
    replan.add_argument("plan", type=whole_number)
    add_site_options(replan, PlanOptions, "time_limit_s")
    replan.add_argument(
        "--budget-gb",
        type=not_negative,
        metavar="GB",
        help="layers that nodes load anew, at most; 0: none (default: as much as it takes)",
    )
    waiting_option(replan)
    replan.set_defaults(act=_replan)
    answers = actions.add_parser(
        "answers", help="what a replanning found: flow for bytes moved", parents=common
    )
    answers.add_argument("run_id", type=whole_number, metavar="run")
    answers.set_defaults(act=_answers)
    adopt = actions.add_parser(
        "adopt", help="make a plan of another answer of a replanning", parents=common
    )
    adopt.add_argument("run_id", type=whole_number, metavar="run")
    adopt.add_argument("answer", type=_answer_number, help="as `plan answers` numbers them, from 0")
    adopt.set_defaults(act=_adopt)


def _extend(site: Session, arguments: argparse.Namespace) -> int:
    run = site.client.plan_runs.do(
        "extend",
        arguments.run_id,
        {"seconds": arguments.time_limit},
        idempotency_key=str(uuid.uuid4()),
    )
    return searched(site, run, no_wait=arguments.no_wait)


def _accept(site: Session, arguments: argparse.Namespace) -> int:
    run = site.client.plan_runs.do("accept", arguments.run_id)
    site.show(run, f"plan run {run['id']} ends with the best plan so far")
    return exit_codes.OK


def _replan(site: Session, arguments: argparse.Namespace) -> int:
    body: Row = {}
    if arguments.budget_gb is not None:
        body["budget_bytes"] = arguments.budget_gb * BYTES_PER_GB
    if options := options_given(arguments, PlanOptions):
        body["options"] = options
    run = site.client.plans.do("replan", arguments.plan, body, idempotency_key=str(uuid.uuid4()))
    return searched(site, run, no_wait=arguments.no_wait)


def _answers(site: Session, arguments: argparse.Namespace) -> int:
    found = site.client.plan_runs.read("replan", arguments.run_id)
    columns = ("ANSWER", "FLOW", "MOVED GB", "BY")
    lines = [
        (
            index, number(one["flow_tokens_per_s"]),
            number(one["moved_bytes"] / BYTES_PER_GB, digits=3), one["method"],
        )
        for index, one in enumerate(found["points"])
    ]  # fmt: skip
    site.show(found, table(columns, lines))
    return exit_codes.OK


def _adopt(site: Session, arguments: argparse.Namespace) -> int:
    run = site.client.plan_runs.do(
        "adopt",
        arguments.run_id,
        {"point": arguments.answer},
        idempotency_key=str(uuid.uuid4()),
    )
    if run["plan"] is None:
        raise CommandFailed(f"plan run {run['id']} {run['status']}: {run['error'] or 'no plan'}")
    show_plan(site, site.client.plans.get(run["plan"]))
    return exit_codes.OK


def _answer_number(text: str) -> int:
    return 0 if text == "0" else whole_number(text)
