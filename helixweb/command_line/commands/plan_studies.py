"""`helixweb plan what-if`, `simulate`, `mix`: studies, and plans of several models."""

import argparse
import uuid
from collections.abc import Callable
from typing import TypeVar

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names, model_names, node_names
from helixweb.command_line.output import duration, number, pairs, percent, table
from helixweb.command_line.plan_runs import FINISHED, POLL_S, searched, waiting_option
from helixweb.command_line.registry import Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage, CommandFailed
from helixweb.command_line.resolve import cluster_named, model_named
from helixweb.command_line.session import (
    Session,
    given,
    not_negative,
    positive,
    seconds,
    whole_number,
)
from helixweb.command_line.site_options import add_site_options, options_given
from planner.plan_options import PlanOptions

T = TypeVar("T")
BYTES_PER_S_OF_GBIT, MS_PER_S = 1e9 / 8, 1e3


def add_parsers(actions: Subparsers, common: list[argparse.ArgumentParser]) -> None:
    _add_what_if(
        actions.add_parser(
            "what-if", help="what a plan is worth on a changed copy of its cluster", parents=common
        )
    )
    simulate = actions.add_parser("simulate", help="what a plan would deliver", parents=common)
    simulate.add_argument("plan", type=whole_number)
    simulate.add_argument("--workload", help="backlog (default), poisson or bursts")
    simulate.add_argument("--share", type=positive, help="of the plan's peak; not for a backlog")
    simulate.add_argument("--burst-size", type=whole_number, help="requests that come at once")
    simulate.add_argument("--policy", help="runtime (default) or published")
    simulate.add_argument("--no-wait", action="store_true", help="print the simulation and return")
    simulate.set_defaults(act=_simulate)
    mix = actions.add_parser("mix", help="a plan for each of several models", parents=common)
    completed_by(mix.add_argument("--cluster", help="its name or id"), cluster_names)
    model = mix.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="MODEL[=WEIGHT]",
        help="name or id, and its share (1); two or more",
    )
    completed_by(model, model_names)
    add_site_options(mix, PlanOptions, "time_limit_s")
    mix.add_argument("--no-wait", action="store_true", help="print the mix and return")
    mix.set_defaults(act=_mix)


def _add_what_if(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=whole_number)
    without = parser.add_argument(
        "--without", action="append", default=[], metavar="NODE", help="take this node away"
    )
    completed_by(without, node_names)
    parser.add_argument(
        "--add",
        nargs=3,
        action="append",
        default=[],
        metavar=("COUNT", "PROFILE", "REGION"),
        help="so many nodes more",
    )
    parser.add_argument(
        "--upgrade",
        nargs=2,
        action="append",
        default=[],
        metavar=("NODE", "PROFILE"),
        help="give a node another profile",
    )
    parser.add_argument(
        "--link",
        nargs=4,
        action="append",
        default=[],
        metavar=("FROM", "TO", "GBIT_PER_S", "LATENCY_MS"),
        help="make a link of nodes or regions so, one way",
    )
    parser.add_argument(
        "--search", type=seconds, metavar="S", help="search on the copy as well, for so long"
    )
    waiting_option(parser)
    parser.set_defaults(act=_what_if)


def _what_if(site: Session, arguments: argparse.Namespace) -> int:
    body = _changes(arguments)
    if not body:
        raise BadUsage("say what to change: --without, --add, --upgrade, --link")
    if arguments.search is not None:
        body["options"] = {"time_limit_s": arguments.search}
    answer = site.client.plans.do(
        "what-if", arguments.plan, body, idempotency_key=str(uuid.uuid4())
    )
    if answer["run"] is not None:
        if not site.as_json:
            site.around.say(_worths(answer))
        run = site.client.plan_runs.get(answer["run"])
        return searched(site, run, no_wait=arguments.no_wait)
    site.show(answer, _worths(answer))
    return exit_codes.OK


def _changes(arguments: argparse.Namespace) -> Row:
    body: Row = {}
    if arguments.without:
        body["removed"] = arguments.without
    if arguments.add:
        body["added"] = [
            {"count": _read(whole_number, count), "profile": profile, "region": region}
            for count, profile, region in arguments.add
        ]
    if arguments.upgrade:
        body["upgraded"] = dict(arguments.upgrade)
    if arguments.link:
        body["links"] = [
            {
                "source": source,
                "target": target,
                "bandwidth_bytes_per_s": _read(positive, gbit) * BYTES_PER_S_OF_GBIT,
                "latency_s": _read(not_negative, latency_ms) / MS_PER_S,
            }
            for source, target, gbit, latency_ms in arguments.link
        ]
    return body


def _read(parse: Callable[[str], T], text: str) -> T:
    """Parse one value of an option with several, whose values argparse does not parse."""
    try:
        return parse(text)
    except argparse.ArgumentTypeError as error:
        raise BadUsage(str(error)) from error


def _worths(answer: Row) -> str:
    sides = (answer["before"], answer["after"])
    rows = [
        ("nodes used", *(one["nodes_used"] for one in sides)),
        ("flow, tokens/s", *(number(one["flow_tokens_per_s"]) for one in sides)),
        ("bound, tokens/s", *(number(one["upper_bound_tokens_per_s"]) for one in sides)),
        ("decode, tokens/s", *(number(one["decode_tokens_per_s"]) for one in sides)),
        ("TTFT", *(duration(one["ttft_s"]) for one in sides)),
        ("TPOT", *(duration(one["tpot_s"]) for one in sides)),
        ("price per hour", *(number(one["price_per_hour"], digits=2) for one in sides)),
    ]
    return table(("", "BEFORE", "AFTER"), rows)


def _simulate(site: Session, arguments: argparse.Namespace) -> int:
    body = given(
        plan=arguments.plan,
        workload=arguments.workload,
        share=arguments.share,
        burst_size=arguments.burst_size,
        policy=arguments.policy,
    )
    row = site.client.simulations.create(body, idempotency_key=str(uuid.uuid4()))
    if arguments.no_wait:
        site.show(row, f"simulation {row['id']} is {row['status']}")
        return exit_codes.OK
    while row["status"] not in FINISHED:
        site.around.sleep(POLL_S)
        row = site.client.simulations.get(row["id"])
    if row["status"] != "succeeded":
        raise CommandFailed(
            f"simulation {row['id']} {row['status']}: {row['error'] or 'no answer'}"
        )
    told = row["forecast"]
    lines: list[tuple[str, object]] = [
        ("simulation", row["id"]),
        ("decode", f"{number(told['decode_tokens_per_s'])} tokens/s"),
        ("prompts", f"{number(told['prompt_tokens_per_s'])} tokens/s"),
        *((name, _spread(told[name.lower()])) for name in ("TTFT", "TPOT", "E2E")),
        ("nodes busy", percent(told["utilisation_mean"])),
    ]
    site.show(row, pairs(lines))
    return exit_codes.OK


def _spread(told: dict[str, float | None]) -> str:
    return f"p50 {duration(told['p50_s'])}, p95 {duration(told['p95_s'])}"


def _mix(site: Session, arguments: argparse.Namespace) -> int:
    cluster = cluster_named(site.client, arguments.cluster)
    body: Row = {
        "cluster": cluster["id"],
        "models": [_weighed(site, word) for word in arguments.model],
    }
    if options := options_given(arguments, PlanOptions):
        body["options"] = options
    row = site.client.model_mixes.create(body, idempotency_key=str(uuid.uuid4()))
    if arguments.no_wait:
        site.show(row, f"mix {row['id']} is {row['status']}")
        return exit_codes.OK
    while row["status"] not in FINISHED:
        try:
            site.around.sleep(POLL_S)
            row = site.client.model_mixes.get(row["id"])
        except KeyboardInterrupt:
            site.around.warn("ending the search; what it has is kept")
            row = site.client.model_mixes.do("cancel", row["id"])
            break
    if row["status"] == "failed":
        raise CommandFailed(f"mix {row['id']} failed: {row['error']}")
    runs = [site.client.plan_runs.get(run) for run in row["runs"]]
    models = {one["id"]: one["name"] for one in site.client.models.all()}
    columns = ("MODEL", "RUN", "PLAN", "FLOW")
    lines = [
        (models.get(run["model"]), run["id"], run["plan"], number(run["flow_tokens_per_s"]))
        for run in runs
    ]
    site.show(row, f"mix {row['id']} {row['status']}\n\n{table(columns, lines)}")
    return exit_codes.OK


def _weighed(site: Session, word: str) -> Row:
    name, equals, weight = word.rpartition("=")
    if not equals:
        return {"model": model_named(site.client, word)["id"]}
    return {"model": model_named(site.client, name)["id"], "weight": _read(positive, weight)}
