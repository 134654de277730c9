"""`helixweb plan what-if`, `simulate`, `mix`: studies, and plans of several models."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from helixweb.command_line.command import Verbs, site_options
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.numbers import (
    Count,
    Positive,
    Seconds,
    not_negative,
    positive,
    whole_number,
)
from helixweb.command_line.output import (
    Cells,
    duration,
    number,
    pairs,
    percent,
    rows_table,
    table,
    written,
)
from helixweb.command_line.plan_runs import searched
from helixweb.command_line.resolve import cluster_named, model_named, names_of
from helixweb.command_line.session import Row, Session, given
from helixweb.command_line.waiting import failure, finished
from planner import PlanOptions

T = TypeVar("T")
BYTES_PER_S_OF_GBIT, MS_PER_S = 1e9 / 8, 1e3
verbs = Verbs()


@verbs()
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
        "upgraded": dict(upgrade),
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


@verbs()
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


@verbs(site_options(PlanOptions, "time_limit_s", "objective"))
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
