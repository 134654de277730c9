"""The papers' policies against ours on emulated nodes, and the simulator's forecasts beside both.

    OMP_NUM_THREADS=1 python -m benchmarks.emulated.compare PROBLEM.json PLAN.json \
        --published FILE.json NAME --layer-times FILE.csv --batch-limits FILE.json

README.md beside this file says how to read what it prints.
"""

import argparse
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.emulated.drive import Clients
from benchmarks.emulated.policies import Case, Row, forecast_of, load_of, setup_of
from benchmarks.emulated.result import (
    Result,
    ResultsFile,
    ResultsRefused,
    Run,
    fingerprint,
    foreseen,
)
from benchmarks.emulated.table import (
    HEADER,
    Pairing,
    bar_lines,
    pairing_lines,
    result_lines,
    sweep_line,
)
from benchmarks.emulated.virtual_cluster import VirtualCluster
from planner.commands.files import read_plan, read_problem, read_text
from planner.serialization import published_placements_from_text
from planner.timing import attach_layer_times

PARAMETERS = Path(__file__).with_name("parameters.toml")


def main() -> int:
    parsed = _parser().parse_args()
    parameters = tomllib.loads(parsed.parameters.read_text(encoding="utf-8"))
    case = read_case(parsed)
    try:
        kept = ResultsFile(parsed.output, of=fingerprint(case, parameters))
    except ResultsRefused as error:
        raise SystemExit(str(error)) from error
    print(f"{case.problem.name}: {' '.join(sys.argv[1:])}")
    print(HEADER, flush=True)
    with ProcessPoolExecutor(max_workers=parsed.jobs) as pool:

        def run_all(rows: Iterable[Row]) -> list[Result]:
            return [_shown(result) for result in _results(list(rows), case, parameters, kept, pool)]

        peaks = {result.run.row.policy: result for result in run_all(_saturated_rows(parameters))}
        loaded = run_all(_loaded_rows(case, peaks, parameters))
        sweep = run_all(_sweep_rows(parameters)) if parsed.sweep else []
    pairings = _pairings(peaks, loaded, share=parameters["load_share"])
    print("\n".join(pairing_lines(pairings)))
    if sweep:
        print(sweep_line(sweep))
    at_capacity = [pairings[0], pairings[-1]]
    results = [*peaks.values(), *loaded, *sweep]
    print("\n".join(bar_lines(at_capacity=at_capacity, results=results, sweep=sweep)))
    return 0


def _results(
    rows: Sequence[Row],
    case: Case,
    parameters: Mapping[str, Any],
    kept: ResultsFile,
    pool: ProcessPoolExecutor,
) -> Iterator[Result]:
    """In the order of `rows`; each is kept as soon as it is there."""
    jobs = [pool.submit(result_of, case, row, parameters, kept.find(row)) for row in rows]
    for job in as_completed(jobs):
        result = job.result()
        kept.put(result)
        print(
            f"  ({result.run.row.label}: {result.run.cpu_s:.0f} CPU s)", file=sys.stderr, flush=True
        )
    yield from (job.result() for job in jobs)


def _shown(result: Result) -> Result:
    print("\n".join(result_lines(result)), flush=True)
    return result


def _pairings(
    peaks: Mapping[str, Result], loaded: Sequence[Result], *, share: float
) -> list[Pairing]:
    papers, same_rate, own_share = loaded
    return [
        Pairing(label="saturated", ours=peaks["ours"], papers=peaks["papers"]),
        Pairing(label="at the same requests/s", ours=same_rate, papers=papers),
        Pairing(label=f"each at {share:.0%} of its own peak", ours=own_share, papers=papers),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path, metavar="PROBLEM.json")
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("--published", nargs=2, metavar=("FILE.json", "NAME"), required=True)
    parser.add_argument("--layer-times", type=Path, metavar="FILE.csv", required=True)
    parser.add_argument("--batch-limits", type=Path, metavar="FILE.json", required=True)
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parser.add_argument(
        "--output", type=Path, metavar="FILE.json", help="keep results there, and go on from them"
    )
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


def result_of(case: Case, row: Row, parameters: Mapping[str, Any], known: Run | None) -> Result:
    """Measured unless it is `known`, and forecast by the simulator as it is now."""
    return Result(
        run=known or run(case, row, parameters),
        foreseen=foreseen(forecast_of(case, row, parameters)),
    )


def run(case: Case, row: Row, parameters: Mapping[str, Any]) -> Run:
    began_s = time.process_time()
    setup = setup_of(case, row, parameters)
    cluster = VirtualCluster(setup)
    clients = Clients(cluster, load_of(case, row, parameters))
    figures = clients.run(warm_up_s=row.warm_up_s, window_s=row.window_s)
    cluster.check_pages()
    adaptive = [
        stats.micro_batches
        for name, stage in cluster.stages.items()
        if setup.options[name].decode_cap == "adaptive"
        and (stats := stage.stats()).micro_batches is not None
    ]
    return Run(
        row=row,
        measured=figures,
        cpu_s=time.process_time() - began_s,
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
        rate_per_s = share * peaks[peak].run.measured.output_tokens_per_s / mean
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
            decode_cap=cap if cap in ("adaptive", "off") else float(cap),
            warm_up_s=sweep["warm_up_s"],
            window_s=sweep["window_s"],
        )


if __name__ == "__main__":
    sys.exit(main())
