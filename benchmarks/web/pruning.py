"""How long pruning takes at a million samples, and how long reports wait meanwhile.

    python -m benchmarks.web.pruning --data-dir DIR [--database-url URL]

DIR is a site that `large_site` has filled, most of its samples older than is kept: **they are gone
afterwards.** While one thread rolls up and prunes as the worker does every five minutes, another
stores a report of the large cluster every half second, as the web process does.
"""

import argparse
import threading
import time

from benchmarks.web.opening import open_site, site_arguments

PACE_S = 0.5
# Twice what a busy SQLite site waits in vain for a lock before it tries again.
WANTED_S = 2.0


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from django.db import connection
    from django.utils import timezone

    from benchmarks.web.reports import store_report
    from benchmarks.web.rows import LARGE
    from helixweb.inventory.models import Cluster
    from helixweb.monitoring.models import MetricRollup, MetricSample
    from helixweb.monitoring.rollups import roll_up
    from helixweb.monitoring.services import prune_samples
    from helixweb.monitoring.traces import prune_traces

    cluster = Cluster.objects.get(name=LARGE).pk
    over, waits = threading.Event(), []

    def report() -> None:
        number = 0
        while not over.wait(PACE_S):
            began = time.monotonic()
            store_report(cluster, number)
            waits.append(time.monotonic() - began)
            number += 1
        connection.close()

    print(f"{MetricSample.objects.count()} samples, {MetricRollup.objects.count()} roll-ups")
    reports = threading.Thread(target=report)
    reports.start()
    time.sleep(10 * PACE_S)
    undisturbed = sorted(waits)
    waits.clear()
    now = timezone.now()
    for title, step in (("roll up", roll_up), ("prune", prune_samples), ("traces", prune_traces)):
        for again in ("", ", again"):
            began, began_cpu = time.monotonic(), time.thread_time()
            step(now)
            print(
                f"{title}{again}: {time.monotonic() - began:.2f} s, "
                f"{time.thread_time() - began_cpu:.2f} CPU s",
                flush=True,
            )
    over.set()
    reports.join()
    waits.sort()
    print(
        f"{MetricSample.objects.count()} samples and {MetricRollup.objects.count()} roll-ups are "
        f"left\na report: {1e3 * undisturbed[-1]:.0f} ms at most before, "
        f"{1e3 * waits[-1]:.0f} ms at most meanwhile, {1e3 * waits[len(waits) // 2]:.0f} ms in the "
        f"median ({len(waits)} reports; wanted: {WANTED_S} s)"
    )
    return 0 if waits[-1] <= WANTED_S else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.pruning")
    site_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
