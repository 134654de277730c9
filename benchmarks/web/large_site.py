"""Fills a site as a large one that has been in use: see README.md for what it holds.

    python -m benchmarks.web.large_site --data-dir DIR [--database-url URL]
        [--nodes N] [--regions N] [--runs N] [--samples N] [--traces N]

Rows that only take room are written directly; what pages read closely is made by the product's own
functions.
"""

import argparse
import time
from collections.abc import Callable

from benchmarks.web.opening import open_site, site_arguments


def main() -> None:
    arguments = _arguments()
    open_site(arguments)
    from benchmarks.web import rows

    steps: list[tuple[str, Callable[[], object]]] = [
        (
            f"{arguments.nodes} nodes, a plan, a deployment",
            lambda: rows.large_cluster(nodes=arguments.nodes, regions=arguments.regions),
        ),
        (f"{arguments.runs} plan runs", lambda: rows.plan_runs(arguments.runs)),
        (f"{arguments.samples} samples", lambda: rows.old_samples(arguments.samples)),
        ("roll-ups of them", rows.roll_ups),
        ("samples of the last quarter of an hour", rows.recent_samples),
        (f"{arguments.traces} traced requests", lambda: rows.traces(arguments.traces)),
    ]
    for title, step in steps:
        began = time.process_time()
        step()
        print(f"{time.process_time() - began:7.1f} CPU s  {title}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.web.large_site", description=__doc__
    )
    site_arguments(parser)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--regions", type=int, default=10)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--traces", type=int, default=20_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
