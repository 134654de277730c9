"""`helixweb plan what-if`, `simulate`, `mix`: studies, and plans of several models."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TypeVar

from helixweb.client import Row
from helixweb.command_line.command import CLUSTER, Verbs, argument, options_given, site_options
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import not_negative, positive, seconds, whole_number
from helixweb.command_line.output import Cells, duration, number, percent, rows_table, table
from helixweb.command_line.plan_runs import NO_WAIT, finished, searched
from helixweb.command_line.resolve import cluster_named, model_named
from helixweb.command_line.session import Session, given
from planner.plan_options import PlanOptions

T = TypeVar("T")
BYTES_PER_S_OF_GBIT, MS_PER_S = 1e9 / 8, 1e3
verbs = Verbs()


def _change(flag: str, *words: str, help: str) -> Callable[..., object]:
    """An option of several words that may be given several times."""
    return argument(flag, nargs=len(words), action="append", default=[], metavar=words, help=help)


@verbs(
    "what-if",
    "what a plan is worth on a changed copy of its cluster",
    argument("plan", type=whole_number),
    argument(
        "--without",
        action="append",
        default=[],
        metavar="NODE",
        help="take this node away",
        complete="nodes",
    ),
    _change("--add", "COUNT", "PROFILE", "REGION", help="so many nodes more"),
    _change("--upgrade", "NODE", "PROFILE", help="give a node another profile"),
    _change(
        "--link",
        "FROM", "TO", "GBIT_PER_S", "LATENCY_MS",
        help="make a link of nodes or regions so, one way",
    ),
    argument("--search", type=seconds, metavar="S", help="search on the copy as well, so long"),
    NO_WAIT,
)  # fmt: skip
def _what_if(site: Session, arguments: Namespace) -> int | None:
    body = {name: value for name, value in _changes(arguments).items() if value}
    if not body:
        raise BadUsage("say what to change: --without, --add, --upgrade, --link")
    if arguments.search is not None:
        body["options"] = {"time_limit_s": arguments.search}
    answer = site.do(site.client.plans, "what-if", arguments.plan, body)
    if answer["run"] is None:
        site.show(answer, _worths(answer))
        return None
    if not site.as_json:
        site.around.say(_worths(answer))
    return searched(site, site.client.plan_runs.get(answer["run"]), arguments)


def _changes(arguments: Namespace) -> Row:
    return {
        "removed": arguments.without,
        "added": [
            {"count": _read(whole_number, count), "profile": profile, "region": region}
            for count, profile, region in arguments.add
        ],
        "upgraded": dict(arguments.upgrade),
        "links": [
            {
                "source": source,
                "target": target,
                "bandwidth_bytes_per_s": _read(positive, gbit) * BYTES_PER_S_OF_GBIT,
                "latency_s": _read(not_negative, latency_ms) / MS_PER_S,
            }
            for source, target, gbit, latency_ms in arguments.link
        ],
    }


def _read(parse: Callable[[str], T], text: str) -> T:
    """Parse one value of an option with several, whose values argparse does not parse."""
    try:
        return parse(text)
    except ArgumentTypeError as error:
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


@verbs(
    "simulate",
    "what a plan would deliver",
    argument("plan", type=whole_number),
    argument("--workload", help="backlog (default), poisson or bursts"),
    argument("--share", type=positive, help="of the plan's peak; not for a backlog"),
    argument("--burst-size", type=whole_number, help="requests that come at once"),
    argument("--policy", help="runtime (default) or published"),
    NO_WAIT,
)
def _simulate(site: Session, arguments: Namespace) -> None:
    names = ("plan", "workload", "share", "burst_size", "policy")
    body = given(**{name: getattr(arguments, name) for name in names})
    row = site.create(site.client.simulations, body)
    if arguments.no_wait:
        site.show(row, f"simulation {row['id']} is {row['status']}")
        return
    simulation = row["id"]
    row = finished(site, row, lambda: site.client.simulations.get(simulation))
    if row["status"] != "succeeded":
        why = row["error"] or "no answer"
        raise CommandFailed(f"simulation {simulation} {row['status']}: {why}")
    site.show_row(
        row,
        {
            "simulation": "id",
            "decode": lambda row: f"{number(row['forecast']['decode_tokens_per_s'])} tokens/s",
            "prompts": lambda row: f"{number(row['forecast']['prompt_tokens_per_s'])} tokens/s",
            "TTFT": lambda row: _spread(row["forecast"]["ttft"]),
            "TPOT": lambda row: _spread(row["forecast"]["tpot"]),
            "E2E": lambda row: _spread(row["forecast"]["e2e"]),
            "nodes busy": lambda row: percent(row["forecast"]["utilisation_mean"]),
        },
    )


def _spread(told: dict[str, float | None]) -> str:
    return f"p50 {duration(told['p50_s'])}, p95 {duration(told['p95_s'])}"


@verbs(
    "mix",
    "a plan for each of several models",
    CLUSTER,
    argument(
        "--model",
        action="append",
        required=True,
        metavar="MODEL[=WEIGHT]",
        help="name or id, and its share (1); two or more",
        complete="models",
    ),
    site_options(PlanOptions, "time_limit_s"),
    NO_WAIT,
)
def _mix(site: Session, arguments: Namespace) -> None:
    cluster, mixes = cluster_named(site.client, arguments.cluster), site.client.model_mixes
    body = given(
        cluster=cluster["id"],
        models=[_weighed(site, word) for word in arguments.model],
        options=options_given(arguments, PlanOptions) or None,
    )
    row = site.create(mixes, body)
    if arguments.no_wait:
        site.show(row, f"mix {row['id']} is {row['status']}")
        return
    mix = row["id"]
    row = finished(site, row, lambda: mixes.get(mix), cancel=lambda: mixes.do("cancel", mix))
    if row["status"] == "failed":
        raise CommandFailed(f"mix {mix} failed: {row['error']}")
    runs = [site.client.plan_runs.get(run) for run in row["runs"]]
    models = {one["id"]: one["name"] for one in site.client.models.all()}
    cells: Cells = {
        "MODEL": lambda run: models.get(run["model"]),
        "RUN": "id",
        "PLAN": "plan",
        "FLOW": "flow_tokens_per_s",
    }
    site.show(row, f"mix {mix} {row['status']}\n\n{rows_table(cells, runs)}")


def _weighed(site: Session, word: str) -> Row:
    name, equals, weight = word.rpartition("=")
    if not equals:
        return {"model": model_named(site.client, word)["id"]}
    return {"model": model_named(site.client, name)["id"], "weight": _read(positive, weight)}
