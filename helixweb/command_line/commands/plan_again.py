"""`helixweb plan extend`, `accept`, `replan`, `answers`, `adopt`: continue or repeat a search."""

from argparse import Namespace
from typing import Any

from helixweb.client import Row
from helixweb.command_line.command import Verbs, argument, options_given, site_options
from helixweb.command_line.numbers import index, not_negative, seconds, whole_number
from helixweb.command_line.output import Cells, number, rows_table
from helixweb.command_line.plan_runs import NO_WAIT, searched, show_plan_of
from helixweb.command_line.session import Session
from planner.plan_options import PlanOptions

BYTES_PER_GB = 1e9
_RUN = argument("run_id", type=whole_number, metavar="run")
verbs = Verbs()


@verbs(
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


@verbs("accept", "end a search with the best so far, as a success", _RUN)
def _accept(site: Session, arguments: Namespace) -> None:
    run = site.client.plan_runs.do("accept", arguments.run_id)
    site.show(run, f"plan run {run['id']} ends with the best plan so far")


@verbs(
    "replan",
    "search around a plan on the cluster as it is now",
    argument("plan", type=whole_number),
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


@verbs("answers", "what a replanning found: flow for bytes moved", _RUN)
def _answers(site: Session, arguments: Namespace) -> None:
    found = site.client.plan_runs.read("replan", arguments.run_id)
    points: list[dict[str, Any]] = [
        {"answer": at, **point} for at, point in enumerate(found["points"])
    ]
    cells: Cells = {
        "ANSWER": "answer",
        "FLOW": "flow_tokens_per_s",
        "MOVED GB": lambda one: number(one["moved_bytes"] / BYTES_PER_GB, digits=3),
        "BY": "method",
    }
    site.show(found, rows_table(cells, points))


@verbs(
    "adopt",
    "make a plan of another answer of a replanning",
    _RUN,
    argument("answer", type=index, help="as `plan answers` numbers them, from 0"),
)
def _adopt(site: Session, arguments: Namespace) -> None:
    body = {"point": arguments.answer}
    show_plan_of(site, site.do(site.client.plan_runs, "adopt", arguments.run_id, body))
