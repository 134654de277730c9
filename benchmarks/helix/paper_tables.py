"""Reproduces figures 6 to 12 of the Helix paper and sets our plans beside them.

    OMP_NUM_THREADS=1 python -m benchmarks.helix.paper_tables PROBLEM.json ... --profiles FOLDER \\
        --arrivals FILE.csv --milp-traces FOLDER [--quick] [--json]

README.md beside this file says what the files are and how to read the tables.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.helix.curve_page import write_curves
from benchmarks.helix.instance import read_instance
from benchmarks.helix.plans import plans_of
from benchmarks.helix.progress_curve import ProgressCurve, read_trace
from benchmarks.helix.reading import Readings
from benchmarks.helix.row import Row, order_lines, orders_of, table_of
from benchmarks.helix.search_study import (
    pruning_rows,
    quality_lines,
    search_curves,
    search_rows,
)
from benchmarks.helix.study import (
    Study,
    offline_as_published,
    on_equal_terms,
    online_as_published,
    placement_rows,
    router_rows,
)
from planner.commands.files import read_text
from planner.workload.arrivals import counts_from_csv

PARAMETERS = Path(__file__).with_name("figures.json")
FIGURES = (6, 7, 8, 9, 10, 11, 12)
FULL = {
    "seeds": [1, 2],
    "router_seeds": list(range(1, 9)),
    "plan_seconds": 60.0,
    "milp_seconds": 60.0,
}
QUICK = {"seeds": [1], "router_seeds": [1], "plan_seconds": 4.0, "milp_seconds": 2.0}
QUICK_ONLINE = {"window_s": 600}
QUICK_EQUAL = {
    "pilot_warm_up_s": 150,
    "pilot_window_s": 150,
    "warm_up_lifetimes": 1,
    "window_lifetimes": 1,
}


def main() -> int:
    parsed = _parsed()
    parameters = json.loads(read_text(parsed.parameters))
    if parsed.quick:
        parameters["equal"].update(QUICK_EQUAL)
        parameters["online"].update(QUICK_ONLINE)
    readings = Readings(parameters=parameters, counts=counts_from_csv(parsed.arrivals))
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    rows: list[Row] = []
    curves: list[ProgressCurve] = []
    for path in parsed.problems:
        study = _study(path, parsed, readings)
        for row in _rows(study, parsed, curves):
            rows.append(row)
            print(f"{row.problem}: figure {row.figure}, {row.method}", file=sys.stderr)
    quality = None
    if 12 in parsed.figures:
        trace = parameters["quality_study"]["trace"]
        quality = read_trace(
            parsed.milp_traces / f"{trace}.csv", problem=trace, name="quality of the search"
        )
        curves.append(quality)
    if parsed.plots is not None:
        write_curves(parsed.plots, curves)
    orders = list(orders_of(rows))
    spent = {
        "wall_s": time.monotonic() - started_s,
        "cpu_s": time.process_time() - started_cpu_s,
    }
    if parsed.json:
        document = {
            "quick": parsed.quick,
            "seeds": parsed.seeds,
            "router_seeds": parsed.router_seeds,
            "rows": [row.as_dict() for row in rows],
            "orders": [order.as_dict() for order in orders],
            "curves": [asdict(curve) for curve in curves],
            "spent": spent,
        }
        print(json.dumps(document, allow_nan=False))
        return 0
    rows.sort(key=lambda row: row.figure)
    for line in table_of(rows):
        print(line)
    if quality is not None:
        for line in quality_lines(quality):
            print(line)
    print("\nOrder of methods, offline decode throughput")
    for line in order_lines(orders):
        print("  " + line)
    seeds = " ".join(map(str, parsed.seeds))
    print(f"\nseeds {seeds}; {spent['wall_s']:.0f} s, {spent['cpu_s']:.0f} s of CPU")
    if parsed.quick:
        print("quick: short searches and windows, and less on equal terms; judge by the full mode")
    return 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="+", type=Path, metavar="PROBLEM.json")
    parser.add_argument("--profiles", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--arrivals", type=Path, required=True, metavar="FILE.csv")
    parser.add_argument("--milp-traces", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parser.add_argument("--figures", type=int, nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="default: 1 2")
    parser.add_argument(
        "--router-seeds", type=int, nargs="+", default=None, help="of figure 10; default: 1 to 8"
    )
    parser.add_argument(
        "--plans", type=Path, metavar="FOLDER", help="take our plans from here, or put them here"
    )
    parser.add_argument("--plan-seconds", type=float, default=None, help="default: 60 for a plan")
    parser.add_argument("--milp-seconds", type=float, default=None, help="default: 60 for a search")
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="search progress, CSV and HTML"
    )
    parser.add_argument("--quick", action="store_true", help="one seed, short searches and windows")
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args()
    defaults = QUICK if parsed.quick else FULL
    for key, value in defaults.items():
        if getattr(parsed, key) is None:
            setattr(parsed, key, value)
    return parsed


def _study(path: Path, parsed: argparse.Namespace, readings: Readings) -> Study:
    instance = read_instance(path, parsed.profiles, readings.parameters)
    return Study(
        instance=instance,
        readings=readings,
        plans=plans_of(
            instance.problem,
            folder=parsed.plans,
            time_limit_s=parsed.plan_seconds,
            seed=parsed.seeds[0],
        ),
        seeds=tuple(parsed.seeds),
        router_seeds=tuple(parsed.router_seeds),
    )


def _rows(study: Study, parsed: argparse.Namespace, curves: list[ProgressCurve]) -> Iterator[Row]:
    """The rows of the instance's figures that were asked for; adds to `curves`."""
    own = study.instance.figures
    name, parameters = study.instance.name, study.parameters
    if own["figure"] in parsed.figures:
        yield from offline_as_published(study)
        yield from online_as_published(study)
        yield from on_equal_terms(study, in_brief=parsed.quick)
    if 9 in parsed.figures and parameters["placement_study"]["problem"] == name:
        yield from placement_rows(study)
    if 10 in parsed.figures and parameters["router_study"]["problem"] == name:
        yield from router_rows(study)
    if 11 in parsed.figures:
        yield from pruning_rows(study)
        found = search_curves(study, parsed.milp_traces, time_limit_s=parsed.milp_seconds)
        curves += found
        yield from search_rows(parameters["pruning_study"]["figure"], name, found)


if __name__ == "__main__":
    sys.exit(main())
