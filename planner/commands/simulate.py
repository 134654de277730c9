"""`planner simulate`: what a plan delivers under a workload, without running anything."""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from planner.balanced_flow import balanced_flow
from planner.commands.files import read_plan
from planner.commands.options import POLICIES, add_timing_options, timed_problem
from planner.commands.request_rows import COLUMNS, request_rows
from planner.domain.instance import instance_nodes
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.max_flow import max_flow, routing_weights
from planner.routers.choice import ROUTER_NAMES
from planner.simulator.forecast import Forecast, Spread
from planner.simulator.record import OnRequest
from planner.simulator.simulate import SimulationOptions, simulate
from planner.timing import timing_source
from planner.workload.arrivals import (
    bursts,
    counts_from_csv,
    like_counts,
    poisson,
    rate_at_share_of_peak,
    requests,
)
from planner.workload.demand import Arrivals, Backlog, Demand
from planner.workload.lengths import drawn_lengths, lengths_from_csv, scaled_lengths
from planner.workload.request import InvalidWorkload, Lengths

_WORKLOADS = ("backlog", "poisson", "bursts", "trace")
_ROUTINGS = ("plan", "balanced", "max_flow")
_LENGTHS_FOR_A_MEAN = 10_000
_NODES_SHOWN = 5


def add_arguments(command: argparse.ArgumentParser) -> None:
    defaults = SimulationOptions()
    command.add_argument("problem", type=Path, metavar="PROBLEM", help="JSON or YAML problem file")
    command.add_argument("plan", type=Path, metavar="PLAN.json")
    command.add_argument(
        "--policy",
        choices=tuple(POLICIES),
        default="runtime",
        help="how nodes batch and links transmit: our runtime, or the published system",
    )
    command.add_argument(
        "--routing",
        choices=_ROUTINGS,
        default="plan",
        help="routing weights: the plan's, of the balanced flow, or of the plain maximum flow",
    )
    command.add_argument("--router", choices=ROUTER_NAMES, default="iwrr")
    command.add_argument("--seed", type=int, default=0, help="of lengths, arrivals and routers")
    command.add_argument(
        "--warm-up", type=float, metavar="S", default=defaults.warm_up_s, help="not measured"
    )
    command.add_argument("--window", type=float, metavar="S", default=defaults.window_s)
    command.add_argument("--json", action="store_true", help="the whole forecast as JSON")
    command.add_argument(
        "--requests",
        type=Path,
        metavar="FILE.csv",
        help="write every request that finishes, warm-up included, with the columns "
        + "; ".join(f"{column}: {meaning}" for column, meaning in COLUMNS.items()),
    )
    _add_workload(command.add_argument_group("workload"))
    add_timing_options(command.add_argument_group("measured times"))


def _add_workload(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workload",
        choices=_WORKLOADS,
        default="backlog",
        help="backlog: requests always wait; the others come at --rate or --share, and trace "
        "follows --arrivals (default: %(default)s)",
    )
    group.add_argument("--rate", type=float, metavar="R", help="mean requests/s")
    group.add_argument(
        "--share",
        type=float,
        metavar="RATIO",
        help="instead of --rate: that share of the tokens/s of a backlog (Helix §6.2: 0.75)",
    )
    group.add_argument("--burst-size", type=int, default=10, metavar="N", help="requests at once")
    group.add_argument(
        "--arrivals", type=Path, metavar="FILE.csv", help="a column arrivals, a row for every 3 s"
    )
    group.add_argument(
        "--lengths",
        type=Path,
        metavar="FILE.csv",
        help="columns input_len, output_len, drawn at random; without it lengths like those of "
        "the Azure conversation trace, stretched to the problem's means",
    )
    group.add_argument(
        "--context", type=int, metavar="TOKENS", help="refuse a trace with longer requests"
    )


def run(parsed: argparse.Namespace) -> None:
    _check_workload(parsed)
    problem, plan = timed_problem(parsed), read_plan(parsed.plan)
    weights = _weights(problem, plan, routing=parsed.routing)
    options = SimulationOptions(warm_up_s=parsed.warm_up, window_s=parsed.window, seed=parsed.seed)

    def forecast_of(demand: Demand, on_request: OnRequest | None = None) -> Forecast:
        return simulate(
            problem,
            placement=plan.placement,
            routing_weights=weights,
            demand=demand,
            policy=POLICIES[parsed.policy],
            partial_inference=plan.partial_inference,
            router=parsed.router,
            options=options,
            on_request=on_request,
        )

    def backlog() -> Backlog:
        return Backlog(lengths=_lengths(problem, parsed))

    rate_per_s: float | None = None
    demand: Demand = backlog()
    if parsed.workload != "backlog":
        rate_per_s = parsed.rate
        if rate_per_s is None:
            peak = forecast_of(backlog())
            rate_per_s = rate_at_share_of_peak(
                peak.decode_tokens_per_s + peak.prompt_tokens_per_s,
                share=parsed.share,
                mean_tokens_per_request=_mean_tokens(_lengths(problem, parsed)),
            )
        times = _times(parsed, rate_per_s=rate_per_s)
        demand = Arrivals(requests=requests(times, _lengths(problem, parsed)))
    if parsed.requests is None:
        forecast = forecast_of(demand)
    else:
        with request_rows(parsed.requests) as on_request:
            forecast = forecast_of(demand, on_request)
    if parsed.json:
        print(json.dumps(_document(forecast, problem, plan, parsed, rate_per_s), allow_nan=False))
    else:
        print("\n".join(_lines(forecast, problem, plan, parsed, rate_per_s)))


def _check_workload(parsed: argparse.Namespace) -> None:
    """Raise InvalidWorkload for options that the workload lacks, or would ignore."""
    workload = parsed.workload
    if workload == "backlog":
        for key in ("rate", "share"):
            if getattr(parsed, key) is not None:
                raise InvalidWorkload(
                    f"--{key} is {getattr(parsed, key):g} but in a backlog requests always wait; "
                    "choose --workload poisson, bursts or trace with it"
                )
    elif (parsed.rate is None) == (parsed.share is None):
        raise InvalidWorkload(f"--workload {workload} needs --rate or --share, one")
    if parsed.arrivals is not None and workload != "trace":
        raise InvalidWorkload(
            f"--arrivals {parsed.arrivals} is for --workload trace but that is {workload}"
        )
    if parsed.context is not None and parsed.lengths is None:
        raise InvalidWorkload(
            f"--context is {parsed.context} but there is no trace to hold against it; "
            "give --lengths FILE.csv with it"
        )


def _weights(problem: Problem, plan: Plan, *, routing: str) -> dict[str, dict[str, float]]:
    if routing != "plan":
        flow_of = balanced_flow if routing == "balanced" else max_flow
        flow = flow_of(
            problem,
            plan.placement,
            partial_inference=plan.partial_inference,
            max_hops=plan.max_hops,
        )
        return routing_weights(flow)
    if not plan.routing_weights:
        raise InvalidWorkload(
            "the plan has no routing weights; give them, or use --routing balanced or max_flow"
        )
    return {source: dict(targets) for source, targets in plan.routing_weights.items()}


def _lengths(problem: Problem, parsed: argparse.Namespace) -> Iterator[Lengths]:
    if parsed.lengths is not None:
        trace = lengths_from_csv(parsed.lengths, context_tokens=parsed.context)
        return drawn_lengths(trace, seed=parsed.seed)
    return scaled_lengths(problem.workload, seed=parsed.seed)


def _mean_tokens(lengths: Iterator[Lengths]) -> float:
    drawn = itertools.islice(lengths, _LENGTHS_FOR_A_MEAN)
    return fmean(pair.prompt_tokens + pair.output_tokens for pair in drawn)


def _times(parsed: argparse.Namespace, *, rate_per_s: float) -> Iterator[float]:
    if parsed.workload == "poisson":
        return poisson(rate_per_s=rate_per_s, seed=parsed.seed)
    if parsed.workload == "bursts":
        return bursts(rate_per_s=rate_per_s, size=parsed.burst_size, seed=parsed.seed)
    if parsed.arrivals is None:
        raise InvalidWorkload("--workload trace needs --arrivals FILE.csv")
    return like_counts(counts_from_csv(parsed.arrivals), rate_per_s=rate_per_s, seed=parsed.seed)


def _document(
    forecast: Forecast,
    problem: Problem,
    plan: Plan,
    parsed: argparse.Namespace,
    rate_per_s: float | None,
) -> dict[str, object]:
    return {
        "problem": problem.name,
        "policy": parsed.policy,
        "router": parsed.router,
        "routing": parsed.routing,
        "workload": parsed.workload,
        "rate_requests_per_s": rate_per_s,
        "seed": parsed.seed,
        "timing": timing_source(problem),
        "max_flow_tokens_per_s": plan.flow.value_tokens_per_s,
        **asdict(replace(forecast, nodes=dict(forecast.nodes))),
    }


def _lines(
    forecast: Forecast,
    problem: Problem,
    plan: Plan,
    parsed: argparse.Namespace,
    rate_per_s: float | None,
) -> Iterator[str]:
    offered = "requests always waiting" if rate_per_s is None else f"{rate_per_s:.3g} requests/s"
    yield (
        f"{problem.name}: {parsed.policy} policy, {parsed.router} on {parsed.routing} weights, "
        f"{offered} ({parsed.workload}), seed {parsed.seed}, {timing_source(problem)} layer times"
    )
    yield (
        f"{forecast.decode_tokens_per_s:.1f} decode and {forecast.prompt_tokens_per_s:.1f} prompt "
        f"tokens/s over {forecast.window_s:.0f} s; {forecast.requests_finished} requests finished, "
        f"{forecast.requests_running:.1f} running on average"
    )
    if plan.instances:
        names = ", ".join(sorted(instance_nodes(plan.instances)))
        predicted = sum(one.output_tokens_per_s for one in plan.instances)
        yield (
            f"the instances of {names} are simulated as stages that hold all layers; as instances "
            f"they are predicted to write {predicted:.1f} output tokens/s"
        )
    # Flows assume whole prompts and one round trip for all; a forecast may exceed them.
    yield f"max flow {plan.flow.value_tokens_per_s:.1f} tokens/s of prompts and outputs by profiles"
    yield f"{'seconds':<12}{'p50':>9}{'p95':>9}{'p99':>9}"
    for label, spread in (
        ("TTFT", forecast.ttft),
        ("queue", forecast.queue),
        ("ITL", forecast.itl),
        ("TPOT", forecast.tpot),
        ("end to end", forecast.e2e),
    ):
        yield _row(label, spread)
    yield (
        f"utilisation {forecast.utilisation_mean:.2f} mean, {forecast.utilisation_max:.2f} most; "
        f"{forecast.batch_decodes:.1f} decodes to a step, convoy {forecast.convoy:.2f}; "
        f"KV peak {forecast.kv_peak:.2f}"
    )
    if forecast.requests_preempted or forecast.requests_failed:
        yield (
            f"{forecast.requests_preempted} times a request lost its KV pages, or found none, and "
            f"began anew; {forecast.requests_failed} failed for want of KV room"
        )
    busiest = sorted(forecast.nodes.items(), key=lambda entry: -entry[1].utilisation)
    for name, node in busiest[:_NODES_SHOWN]:
        yield (
            f"  {name:<14} busy {node.utilisation:.2f}, batch {node.batch_decodes:.1f}, "
            f"KV {node.kv_mean:.2f} mean {node.kv_peak:.2f} peak, {node.queued:.1f} items wait"
        )
    links = sorted(forecast.links, key=lambda link: -link.utilisation)
    for link in links[:_NODES_SHOWN]:
        yield (
            f"  {link.source} -> {link.target}: busy {link.utilisation:.2f}, "
            f"{link.queued:.1f} messages wait, {link.queued_peak} at most"
        )


def _row(label: str, spread: Spread) -> str:
    return f"{label:<12}{spread.p50_s:>9.3f}{spread.p95_s:>9.3f}{spread.p99_s:>9.3f}"
