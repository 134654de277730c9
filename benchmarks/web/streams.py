"""How fast one web process delivers events to many open pages, and what that takes of a core.

    python -m benchmarks.web.streams --data-dir DIR [--database-url URL]
        [--streams N] [--seconds N]

DIR is a site that `large_site` has filled. The web process is started as `make demo` starts it.
Every second a coordinator's report of all nodes is stored by the product's own function, which
emits the event that open monitors get. A delay is from the commit until the last byte has reached
a client; all clients are one process, so that it includes their own waiting.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import httpx
import psutil

from benchmarks.web.opening import ROOT, open_site, site_arguments, site_environment
from helixweb.demo.processes import free_port
from helixweb.demo.scenario import web_command

WANTED_P95_S = 0.5
WANTED_CORE = 0.25
READY_WITHIN_S = 60
PACE_S = 1.0
IDLE_S = 5.0


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from benchmarks.web.asking import Browser
    from benchmarks.web.rows import LARGE
    from helixweb.inventory.models import Cluster

    cluster = Cluster.unscoped.get(name=LARGE).pk
    port = free_port()
    environment = {**os.environ, **site_environment(arguments), "OMP_NUM_THREADS": "1"}
    environment["HELIX_STREAMS_PER_USER"] = str(arguments.streams)  # all of one log-in
    with (arguments.data_dir / "web.log").open("ab") as log:
        web = subprocess.Popen(web_command(port), cwd=ROOT, env=environment, stderr=log)
    try:
        await_ready(port)
        clients = open_streams(port, cluster, arguments.streams, Browser().session)
        process = psutil.Process(web.pid)
        idle = _share_of_core(process, IDLE_S)
        began, began_cpu = time.monotonic(), cpu_s(process)
        committed, storing_s = publish_reports(cluster, seconds=arguments.seconds)
        time.sleep(PACE_S)
        length_s = time.monotonic() - began
        share = (cpu_s(process) - began_cpu) / length_s
        answer = json.loads(clients.communicate("")[0])
    finally:
        web.terminate()
        web.wait()
    delays = delays_of(answer, committed)
    p95 = delays[int(0.95 * len(delays))]
    print(
        f"{arguments.streams} streams, {len(committed)} events, {len(delays)} arrivals of "
        f"{arguments.streams * len(committed)}, {answer['bytes'] / length_s / 1e6:.2f} MB/s\n"
        f"delay p50 {1e3 * delays[len(delays) // 2]:.0f} ms, p95 {1e3 * p95:.0f} ms "
        f"(wanted: {1e3 * WANTED_P95_S:.0f}), most {1e3 * delays[-1]:.0f} ms\n"
        f"web process: {share:.1%} of a core (wanted: {WANTED_CORE:.0%}), {idle:.1%} while nothing "
        f"happens\nstoring a report took {1e3 * storing_s:.0f} CPU ms, not in the web process"
    )
    return 0 if p95 <= WANTED_P95_S and share <= WANTED_CORE else 1


def open_streams(port: int, cluster: int, count: int, session: str) -> subprocess.Popen[str]:
    """A process that reads the Monitor's events `count` times; all streams are open."""
    clients = subprocess.Popen(
        [
            sys.executable, "-m", "benchmarks.web.stream_clients", str(port), str(count),
            f"metrics:{cluster},cluster:{cluster}", session,
        ],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if clients.stdout is None or clients.stdout.readline() != "open\n":
        raise SystemExit("the streams were not opened")
    return clients


def delays_of(answer: dict[str, Any], committed: dict[int, float]) -> list[float]:
    """Sorted, of the arrivals in what the clients' process wrote."""
    return sorted(at - committed[pk] for pk, at in answer["arrivals"] if pk in committed)


def publish_reports(
    cluster: int, *, seconds: float, first: int = 0
) -> tuple[dict[int, float], float]:
    """Commits a report a second: when by the event's id, and the CPU seconds each took."""
    from benchmarks.web.reports import store_report
    from helixweb.common import broadcaster

    committed: dict[int, float] = {}
    spent, number, began = 0.0, 0, time.monotonic()
    while (due := began + number * PACE_S) < began + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        began_cpu = time.process_time()
        store_report(cluster, first + number)
        now = time.monotonic()
        spent += time.process_time() - began_cpu
        committed[broadcaster.latest_place().newest] = now
        number += 1
    return committed, spent / number


def await_ready(port: int) -> None:
    """Returns when the web process answers and its database is migrated."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).is_success:
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(0.2)
    raise SystemExit(f"the site did not answer within {READY_WITHIN_S} s; see web.log beside it")


def _share_of_core(process: psutil.Process, seconds: float) -> float:
    before = cpu_s(process)
    time.sleep(seconds)
    return (cpu_s(process) - before) / seconds


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.streams")
    site_arguments(parser)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
