"""How long pruning takes at a million samples, and how long reports wait for it meanwhile.

    python -m benchmarks.web.pruning --data-dir DIR [--database-url URL]

DIR is a site that `large_site` has filled, most of its samples older than is kept: **they are gone
afterwards.** While one process rolls up and prunes as the worker does every five minutes, another
stores a report of the large cluster every half second, as the web process does. A wait is how long
its transaction stood before the database let it begin: what pruning adds. The whole of a report is
printed beside it, which a busy machine stretches, as it does before anything is pruned.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from benchmarks.web.opening import open_site, site_arguments

PACE_S = 0.5
BEFORE_S = 5.0
WANTED_S = 1.0


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from django.db import connection

    from benchmarks.web.reports import store_report
    from benchmarks.web.rows import LARGE
    from helixweb.inventory.models import Cluster
    from helixweb.monitoring.models import MetricRollup, MetricSample

    cluster = Cluster.unscoped.get(name=LARGE).pk
    waits: list[float] = []

    def timed(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        began = time.monotonic()
        try:
            return execute(sql, *rest)
        finally:
            if sql.startswith("BEGIN"):
                waits.append(time.monotonic() - began)

    def reports(go_on: Callable[[], bool]) -> list[float]:
        took, number = [], 0
        while go_on():
            began = time.monotonic()
            store_report(cluster, number)
            took.append(time.monotonic() - began)
            number += 1
            time.sleep(max(0.0, PACE_S - took[-1]))
        return took

    print(f"{MetricSample.unscoped.count()} samples, {MetricRollup.unscoped.count()} roll-ups")
    pruning = multiprocessing.get_context("spawn").Process(target=_prune, args=(arguments,))
    with connection.execute_wrapper(timed):
        until = time.monotonic() + BEFORE_S
        before = reports(lambda: time.monotonic() < until)
        waits.clear()
        pruning.start()
        meanwhile = reports(pruning.is_alive)
    pruning.join()
    print(
        f"{MetricSample.unscoped.count()} samples and {MetricRollup.unscoped.count()} roll-ups are "
        f"left\nwaiting for the database: {1e3 * max(waits, default=0.0):.0f} ms at most (wanted: "
        f"{1e3 * WANTED_S:.0f})\na whole report: {_spread(before)} before, "
        f"{_spread(meanwhile)} meanwhile"
    )
    return 0 if pruning.exitcode == 0 and max(waits, default=0.0) <= WANTED_S else 1


def _prune(arguments: argparse.Namespace) -> None:
    open_site(arguments)
    from django.utils import timezone

    from helixweb.common.tasks import prune_expired
    from helixweb.monitoring.history import roll_up
    from helixweb.monitoring.services import prune_samples, prune_traces

    now = timezone.now()
    for title, step in (
        ("roll up", lambda: roll_up(now)),
        ("prune", lambda: prune_samples(now)),
        ("traces", lambda: prune_traces(now)),
        ("events", prune_expired),
    ):
        for again in ("", ", again"):
            began, began_cpu = time.monotonic(), time.thread_time()
            step()
            print(
                f"{title}{again}: {time.monotonic() - began:.2f} s, "
                f"{time.thread_time() - began_cpu:.2f} CPU s",
                flush=True,
            )


def _spread(took: list[float]) -> str:
    ordered = sorted(took)
    return (
        f"{1e3 * ordered[len(ordered) // 2]:.0f} ms in the median and {1e3 * ordered[-1]:.0f} at "
        f"most of {len(ordered)}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.pruning")
    site_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
