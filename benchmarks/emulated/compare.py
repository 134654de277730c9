"""The papers' policies against ours on emulated nodes, and the simulator's forecasts beside both.

    OMP_NUM_THREADS=1 python -m benchmarks.emulated.compare PROBLEM.json PLAN.json \
        --published FILE.json NAME --layer-times FILE.csv --batch-limits FILE.json

README.md beside this file says how to read what it prints.
"""

import argparse
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.emulated.drive import Clients, Figures, Percentiles
from benchmarks.emulated.policies import Case, Row, forecast_of, load_of, setup_of
from benchmarks.emulated.virtual_cluster import VirtualCluster
from planner.commands.files import read_plan, read_problem, read_text
from planner.serialization import published_placements_from_text
from planner.simulator.forecast import Forecast, Spread
from planner.timing import attach_layer_times

PARAMETERS = Path(__file__).with_name("parameters.toml")
HEADER = (
    f"{'run':<30}{'requests/s':>11}{'tokens/s':>10}{'TTFT p50':>10}{'p95':>7}"
    f"{'ITL p50':>9}{'p95':>7}{'TPOT p50':>10}{'p95':>7}{'running':>9}{'anew':>6}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run, its forecast, and what it cost."""

    row: Row
    figures: Figures
    forecast: Forecast
    cpu_s: float
    micro_batches: tuple[float, float] | None  # least and most of the stages', at the end


def main() -> int:
    parsed = _parser().parse_args()
    parameters = tomllib.loads(parsed.parameters.read_text(encoding="utf-8"))
    case = read_case(parsed)
    print(f"{case.problem.name}: {' '.join(sys.argv[1:])}")
    print(HEADER, flush=True)
    with ProcessPoolExecutor(max_workers=parsed.jobs) as pool:

        def run_all(rows: Sequence[Row]) -> Iterator[Result]:
            jobs = [pool.submit(run, case, row, parameters) for row in rows]
            for job in jobs:
                result = job.result()
                print("\n".join(_lines(result)), flush=True)
                yield result

        peaks = {result.row.policy: result for result in run_all(list(_saturated_rows(parameters)))}
        loaded = list(run_all(list(_loaded_rows(case, peaks, parameters))))
        print("\n".join(_comparison(peaks, loaded)), flush=True)
        if parsed.sweep:
            print("\n".join(_sweep_lines(list(run_all(list(_sweep_rows(parameters)))))))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path, metavar="PROBLEM.json")
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("--published", nargs=2, metavar=("FILE.json", "NAME"), required=True)
    parser.add_argument("--layer-times", type=Path, metavar="FILE.csv", required=True)
    parser.add_argument("--batch-limits", type=Path, metavar="FILE.json", required=True)
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one run each")
    parser.add_argument("--sweep", action=argparse.BooleanOptionalAction, default=True)
    return parser


def read_case(parsed: argparse.Namespace) -> Case:
    problem = attach_layer_times(
        read_problem(parsed.problem),
        layer_times_csv=read_text(parsed.layer_times),
        batch_limits_json=read_text(parsed.batch_limits),
        name_hint=f"{parsed.layer_times}, {parsed.batch_limits}",
    )
    file, name = parsed.published
    published = published_placements_from_text(
        read_text(Path(file)), name_hint=file, num_layers=problem.model.num_layers
    )
    if name not in published:
        raise SystemExit(f"{file} has no placement {name!r}; it has: {', '.join(published)}")
    return Case(
        problem=problem,
        published=published[name].placement,
        plan=read_plan(parsed.plan),
    )


def run(case: Case, row: Row, parameters: Mapping[str, Any]) -> Result:
    began_s = time.process_time()
    setup = setup_of(case, row, parameters)
    cluster = VirtualCluster(setup)
    clients = Clients(cluster, load_of(case, row, parameters))
    figures = clients.run(warm_up_s=row.warm_up_s, window_s=row.window_s)
    cluster.check_pages()
    cpu_s = time.process_time() - began_s
    adaptive = [
        stats.micro_batches
        for name, stage in cluster.stages.items()
        if setup.options[name].decode_cap == "adaptive"
        and (stats := stage.stats()).micro_batches is not None
    ]
    return Result(
        row=row,
        figures=figures,
        forecast=forecast_of(case, row, parameters),
        cpu_s=cpu_s,
        micro_batches=(min(adaptive), max(adaptive)) if adaptive else None,
    )


def _saturated_rows(parameters: Mapping[str, Any]) -> Iterator[Row]:
    for policy in parameters["policies"]:
        yield Row(
            label=f"{policy}, saturated",
            policy=policy,
            rate_per_s=None,
            decode_cap=None,
            **parameters["saturated"],
        )


def _loaded_rows(
    case: Case, peaks: Mapping[str, Result], parameters: Mapping[str, Any]
) -> Iterator[Row]:
    """Each policy at a share of its own peak, and ours also at the papers' rate."""
    share, mean = parameters["load_share"], case.problem.workload.mean_output_tokens

    def row_at(policy: str, peak: str) -> Row:
        rate_per_s = share * peaks[peak].figures.output_tokens_per_s / mean
        return Row(
            label=f"{policy}, {share:.0%} of {peak}",
            policy=policy,
            rate_per_s=rate_per_s,
            decode_cap=None,
            **parameters["load"],
        )

    yield row_at("papers", "papers")
    yield row_at("ours", "papers")
    yield row_at("ours", "ours")


def _sweep_rows(parameters: Mapping[str, Any]) -> Iterator[Row]:
    sweep = parameters["sweep"]
    for cap in sweep["decode_caps"]:
        yield Row(
            label=f"ours, cap {cap}" if isinstance(cap, str) else f"ours, cap R/{cap}",
            policy="ours",
            rate_per_s=None,
            decode_cap=cap,
            warm_up_s=sweep["warm_up_s"],
            window_s=sweep["window_s"],
        )


def _lines(result: Result) -> Iterator[str]:
    row, measured, forecast = result.row, result.figures, result.forecast
    rate = "-" if row.rate_per_s is None else f"{row.rate_per_s:.3f}"
    yield (
        f"{row.label:<30}{rate:>11}{measured.output_tokens_per_s:>10.1f}"
        f"{_pair(measured.ttft, 10)}{_pair(measured.itl, 9)}{_pair(measured.tpot, 10)}"
        f"{measured.requests_running:>9.1f}{measured.begun_anew:>6}"
        f"   {result.cpu_s:.0f} CPU s"
        + (
            ""
            if result.micro_batches is None
            else f", M {result.micro_batches[0]:.1f} to {result.micro_batches[1]:.1f}"
        )
        + (f", {measured.requests_failed} FAILED" if measured.requests_failed else "")
    )
    yield (
        f"{'  simulator':<41}{forecast.decode_tokens_per_s:>10.1f}"
        f"{_pair(forecast.ttft, 10)}{_pair(forecast.itl, 9)}{_pair(forecast.tpot, 10)}"
        f"{forecast.requests_running:>9.1f}"
    )
    yield (
        f"{'  forecast / measured':<41}"
        f"{forecast.decode_tokens_per_s / measured.output_tokens_per_s:>10.3f}"
        f"{_ratios(forecast.ttft, measured.ttft, 10)}{_ratios(forecast.itl, measured.itl, 9)}"
        f"{_ratios(forecast.tpot, measured.tpot, 10)}"
    )


def _pair(spread: Percentiles | Spread, width: int) -> str:
    return f"{spread.p50_s:>{width}.3f}{spread.p95_s:>7.2f}"


def _ratios(forecast: Spread, measured: Percentiles, width: int) -> str:
    return f"{forecast.p50_s / measured.p50_s:>{width}.3f}{forecast.p95_s / measured.p95_s:>7.2f}"


def _comparison(peaks: Mapping[str, Result], loaded: Sequence[Result]) -> Iterator[str]:
    papers, same_rate, own_share = loaded
    yield "ours / papers" + " " * 28 + f"{'tokens/s':>10}{'TTFT p95':>10}{'ITL p95':>10}"
    for label, ours, theirs in (
        ("saturated", peaks["ours"], peaks["papers"]),
        ("at the same requests/s", same_rate, papers),
        ("each at that share of its own peak", own_share, papers),
    ):
        a, b = ours.figures, theirs.figures
        yield (
            f"  {label:<39}{a.output_tokens_per_s / b.output_tokens_per_s:>10.2f}"
            f"{a.ttft.p95_s / b.ttft.p95_s:>10.2f}{a.itl.p95_s / b.itl.p95_s:>10.2f}"
        )


def _sweep_lines(results: Sequence[Result]) -> Iterator[str]:
    rates = {result.row.decode_cap: result.figures.output_tokens_per_s for result in results}
    adaptive = rates.pop("adaptive")
    best = max(rates, key=lambda cap: rates[cap])
    yield (
        f"controller {adaptive:.1f} tokens/s, best fixed cap ({best}) {rates[best]:.1f}: "
        f"{adaptive / rates[best]:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
