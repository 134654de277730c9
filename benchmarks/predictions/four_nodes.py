"""Does a plan do what was predicted of it, on the demo's four nodes over shaped links?

    python -m benchmarks.predictions.four_nodes [--folder DIR] [--keep FILE.json]
    python -m benchmarks.predictions.four_nodes --from FILE.json

Starts the whole product: site, worker, coordinator and tower in one namespace, the other nodes in
one each, all joined by shaped links; the agents measure their nodes in the background, the site
computes a plan from that, and it is deployed. Streams of requests of one length then keep it busy.
Printed is what was measured beside what the simulator says of the same plan, profiles, links and
load, for each number of streams, and what the deployment's page said by then, which takes means of
a minute. `--keep` writes what was measured and the problem, `--from` reads that in place of running
anything. Needs root. Exit code 1: something is further off than wanted.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.predictions.product import Product, product
from benchmarks.predictions.streams import Answered, Streams
from planner.domain.serving_policy import RUNTIME_POLICY
from planner.serialization import plan_from_dict, problem_from_dict
from planner.simulator.forecast import Forecast
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Backlog
from planner.workload.request import Lengths
from tests.shaped_links.network import missing_for_shaping, relayed_mesh
from tests.shaped_links.shaped_pipe import Shape

PARAMETERS = Path(__file__).with_name("parameters.toml")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parameters", type=Path, default=PARAMETERS, metavar="FILE.toml")
    parser.add_argument("--folder", type=Path, help="keeps data and logs")
    parser.add_argument("--keep", type=Path, metavar="FILE.json")
    parser.add_argument("--from", dest="kept", type=Path, metavar="FILE.json")
    arguments = parser.parse_args(argv)
    parameters = tomllib.loads(arguments.parameters.read_text())
    if arguments.kept is not None:
        found = json.loads(arguments.kept.read_text())
    else:
        missing = missing_for_shaping()
        if missing:
            print(missing, file=sys.stderr)
            return 1
        folder = arguments.folder or Path(tempfile.mkdtemp(prefix="helixweb-predictions-"))
        print(f"data and logs: {folder}", flush=True)
        found = _measure(folder, parameters)
        if arguments.keep is not None:
            arguments.keep.write_text(json.dumps(found))
    return 0 if all([_compare(found, run, parameters["wanted"]) for run in found["runs"]]) else 1


def _measure(folder: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    network = dict(parameters["network"])
    control = network.pop("congestion_control")
    with (
        relayed_mesh(4, Shape(**network), congestion_control=control) as link,
        product(folder, parameters, link) as served,
    ):
        return {
            "problem": served.problem,
            "plan": served.plan,
            "measurements": served.measurements,
            "runs": [
                _run(served, streams, parameters["load"])
                for streams in parameters["load"]["streams"]
            ],
        }


def _run(served: Product, streams: int, load: dict[str, Any]) -> dict[str, Any]:
    before = served.node_stats()
    with Streams(
        served.coordinator_url,
        key=served.key,
        model=served.model,
        streams=streams,
        prompt_tokens=load["prompt_tokens"],
        output_tokens=load["output_tokens"],
        vocabulary=served.vocabulary,
        seed=load["seed"],
    ) as clients:
        time.sleep(load["warm_up_s"])
        began_s, before = time.monotonic(), served.node_stats()
        time.sleep(load["window_s"])
        ended_s, after = time.monotonic(), served.node_stats()
        page = served.page_figures()
    done = [one for one in clients.answered if began_s <= one.last_s < ended_s]
    tokens = sum(began_s <= moment < ended_s for moment in clients.token_moments_s)
    print(f"{streams} streams: {len(done)} answers, {clients.failed} failed", flush=True)
    return {
        "streams": streams,
        "seconds": ended_s - began_s,
        "tokens_per_s": tokens / (ended_s - began_s),
        "answered": [asdict(one) for one in done],
        "failed": clients.failed,
        "stats_before": before,
        "stats_after": after,
        "page": page,
    }


def forecast_of(found: dict[str, Any], run: dict[str, Any]) -> Forecast:
    """What the simulator says of a run's plan at its load."""
    problem, plan = problem_from_dict(found["problem"]), plan_from_dict(found["plan"])
    lengths = [
        Lengths(prompt_tokens=one["prompt_tokens"], output_tokens=one["output_tokens"])
        for one in run["answered"]
    ]
    return simulate(
        problem,
        placement=plan.placement,
        routing_weights=plan.routing_weights,
        demand=Backlog(
            lengths=itertools.cycle(lengths),
            prompts_in_flight=run["streams"],
            requests_in_flight=run["streams"],
        ),
        policy=RUNTIME_POLICY,
        partial_inference=plan.partial_inference,
        options=SimulationOptions(warm_up_s=60, window_s=300),
    )


def _compare(found: dict[str, Any], run: dict[str, Any], wanted: dict[str, float]) -> bool:
    """Print a load's figures; whether all are as near as wanted."""
    answered = [Answered(**one) for one in run["answered"]]
    tpots = [one.tpot_s for one in answered if one.tpot_s is not None]
    forecast = forecast_of(found, run)
    rows = (
        ("output tokens/s", run["tokens_per_s"], forecast.decode_tokens_per_s, "throughput", 1.0),
        ("TTFT ms, median", statistics.median(one.ttft_s for one in answered),
         forecast.ttft.p50_s, "latency", 1e3),
        ("TPOT ms, median", statistics.median(tpots), forecast.tpot.p50_s, "latency", 1e3),
    )  # fmt: skip
    print(f"{run['streams']} streams, {len(answered)} answers, {run['failed']} failed:")
    within = run["failed"] == 0
    for name, measured, predicted, kind, scale in rows:
        off = predicted / measured - 1
        limit = min(wanted["throughput"], wanted["simulator_throughput"])
        limit = limit if kind == "throughput" else wanted["latency"]
        within &= abs(off) <= limit
        print(
            f"  {name:16} measured {measured * scale:8.1f}  predicted {predicted * scale:8.1f}  "
            f"off by {off:+6.1%} (wanted: at most {limit:.0%})"
        )
    for figure in run["page"]:
        said = (figure["measured"], figure["predicted"])
        measured, predicted = ("-" if value is None else f"{value:.3g}" for value in said)
        print(f"  page: {figure['quantity']:16} measured {measured}, predicted {predicted}")
    for name, node in forecast.nodes.items():
        busy = _busy(run, name)
        if busy is not None:
            print(f"  {name:16} busy {busy:.0%}, predicted {node.utilisation:.0%}")
    return within


def _busy(run: dict[str, Any], name: str) -> float | None:
    before, after = run["stats_before"].get(name), run["stats_after"].get(name)
    if before is None or after is None or after["uptime_s"] <= before["uptime_s"]:
        return None
    grown: float = after["busy_s_total"] - before["busy_s_total"]
    return grown / (after["uptime_s"] - before["uptime_s"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
