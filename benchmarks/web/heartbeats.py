"""Whether a site keeps up with the heartbeats of a large cluster, and what one of them takes.

    python -m benchmarks.web.heartbeats --data-dir DIR [--database-url URL] [--nodes N]
        [--processes N] [--rate N] [--seconds N] [--streams N]

Fills a new site under DIR with a deployment of N nodes, all silent for a minute, and starts its web
processes. Each agent sends heartbeats at times of a fixed schedule, but none while it waits for an
answer. A delay is from the scheduled time to the answer; what was answered by 503 or after the end
does not count. All nodes come back in the first seconds, which are reported separately. Beside them
another process stores a coordinator's report a second, and monitors are open. All share the
machine.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import psutil

from benchmarks.web.opening import ROOT, open_site, site_arguments, site_environment
from benchmarks.web.streams import (
    await_ready,
    cpu_s,
    delays_of,
    open_streams,
    publish_reports,
)
from helixweb.demo.processes import free_port
from helixweb.demo.scenario import web_command
from runtime.protocol.control import Heartbeat, ObservedState, StageStats
from runtime.protocol.phases import Phase
from runtime.protocol.reach import Reach, digest_of

WANTED_P95_S = 0.2
SILENT_FOR = timedelta(minutes=1)
WANTED_BACK_P95_S = 1.0
HELD_WITHIN = 0.01
COMING_BACK_S = 12.0  # after which all know which endpoints to try: two turns of these lists


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from benchmarks.web.asking import Browser

    cluster, placed = _filled(arguments)
    port = free_port()
    environment = {**os.environ, **site_environment(arguments), "OMP_NUM_THREADS": "1"}
    environment["HELIX_STREAMS_PER_USER"] = str(arguments.streams)  # all of one log-in
    command = [*web_command(port), "--workers", str(arguments.processes)]
    with ExitStack() as stack:
        log = stack.enter_context((arguments.data_dir / "web.log").open("ab"))
        web = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)
        stack.callback(web.wait)
        stack.callback(web.terminate)
        await_ready(port)
        clients = open_streams(port, cluster, arguments.streams, Browser().session)
        agents = stack.enter_context(
            ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        )
        began, length_s = time.monotonic() + COMING_BACK_S, arguments.seconds
        beats = agents.submit(_send, port, placed, arguments.rate, began, length_s)
        publish_reports(cluster, seconds=COMING_BACK_S)
        parent = psutil.Process(web.pid)
        processes = [parent, *parent.children(recursive=True)]
        before = sum(map(cpu_s, processes))
        committed, _ = publish_reports(cluster, seconds=length_s, first=int(COMING_BACK_S) + 1)
        spent_s = sum(map(cpu_s, processes)) - before
        back, delays = beats.result()
        streamed = delays_of(json.loads(clients.communicate("")[0]), committed)
    held = len(delays) / length_s
    p95_back, p95, p95_streamed = map(_p95, (back, delays, streamed))
    print(
        f"{len(placed)} nodes, {arguments.processes} web processes, {arguments.rate:.0f} "
        f"heartbeats/s for {length_s:.0f} s: {held:.0f}/s were answered\n"
        f"delay p50 {1e3 * delays[len(delays) // 2]:.0f} ms, p95 {1e3 * p95:.0f} ms, most "
        f"{1e3 * delays[-1]:.0f} ms (wanted: {1e3 * WANTED_P95_S:.0f} at p95)\n"
        f"in the {COMING_BACK_S:.0f} s before, in which all came back: "
        f"{len(back) / COMING_BACK_S:.0f}/s, p50 {1e3 * back[len(back) // 2]:.0f} ms, p95 "
        f"{1e3 * p95_back:.0f} ms, most {1e3 * back[-1]:.0f} ms (wanted: "
        f"{1e3 * WANTED_BACK_P95_S:.0f} at p95)\n"
        f"web processes: {1e3 * spent_s / len(delays):.2f} CPU ms a heartbeat, "
        f"{spent_s / length_s:.2f} cores\n"
        f"{arguments.streams} monitors beside them: events after p50 "
        f"{1e3 * streamed[len(streamed) // 2]:.0f} ms, p95 {1e3 * p95_streamed:.0f} ms"
    )
    kept_up = held >= (1 - HELD_WITHIN) * arguments.rate and p95_back <= WANTED_BACK_P95_S
    return 0 if kept_up and max(p95, p95_streamed) <= WANTED_P95_S else 1


def _p95(delays: Sequence[float]) -> float:
    return delays[int(0.95 * len(delays))]


def _filled(arguments: argparse.Namespace) -> tuple[int, list[tuple[str, int, int]]]:
    """The cluster, and of each node of the deployment its credential and its layers.

    The worker has noticed that they are silent, and that the deployment lost them.
    """
    from django.utils import timezone

    from benchmarks.web import rows
    from helixweb.common.auth import sha256_hex
    from helixweb.deployment.models import Deployment, NodeAssignment
    from helixweb.deployment.settling import settle
    from helixweb.inventory.models import Cluster, Node

    cluster = Cluster.unscoped.filter(name=rows.LARGE).first()
    if cluster is None:
        cluster = rows.large_cluster(nodes=arguments.nodes, regions=10)
    nodes = list(Node.unscoped.filter(cluster=cluster))
    for node in nodes:
        node.credential_hash = sha256_hex(_credential(node.pk))
    Node.unscoped.bulk_update(nodes, ["credential_hash"], batch_size=200)
    now = timezone.now()
    silent = Node.unscoped.filter(cluster=cluster)
    silent.update(last_seen_at=now - SILENT_FOR, silence_announced=True)
    settle(Deployment.unscoped.get(cluster=cluster).pk, now=now)
    placed = NodeAssignment.unscoped.filter(deployment__cluster=cluster).order_by("pk")
    return cluster.pk, [
        (_credential(row.node_id), row.desired["first"], row.desired["end"]) for row in placed
    ]


def _credential(node: int) -> str:
    return f"hlxn_{node:032d}"


def _send(
    port: int,
    placed: Sequence[tuple[str, int, int]],
    rate: float,
    began: float,
    length_s: float,
) -> tuple[list[float], list[float]]:
    """Sorted delays of the heartbeats that were answered before `began`, and after it."""
    return asyncio.run(_send_all(port, placed, rate, began, length_s))


async def _send_all(
    port: int,
    placed: Sequence[tuple[str, int, int]],
    rate: float,
    began: float,
    length_s: float,
) -> tuple[list[float], list[float]]:
    back: list[float] = []
    delays: list[float] = []
    every_s = len(placed) / rate

    async def beat(number: int, credential: str, first: int, end: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        due, reach = began - COMING_BACK_S + every_s * number / len(placed), Reach()
        sent = 0
        while due < began + length_s:
            await asyncio.sleep(due - time.monotonic())
            sent += 1
            stats = StageStats(
                kv_pages_total=5000, kv_pages_used=2000, sequences=20, steps_total=sent,
                prompt_tokens_total=200 * sent, decode_tokens_total=100 * sent,
                busy_s_total=0.5 * sent, uptime_s=float(sent), weights_bytes=10**10,
                kv_bytes=10**10,
            )  # fmt: skip
            observed = ObservedState(
                generation=1, phase=Phase.READY, first=first, end=end, stage=stats
            )
            body = Heartbeat(observed=observed, reach=reach).model_dump_json().encode()
            writer.write(
                b"POST /api/v1/agent/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\n"
                + f"Authorization: Bearer {credential}\r\n".encode()
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                # The site closes connections that are not used for some seconds.
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            text = await reader.readexactly(int(length))
            if head.startswith(b"HTTP/1.1 200"):
                # Not checked as agents do: a thousand endpoints would take 5 ms, and one process is
                # all agents here.
                if (to_reach := json.loads(text).get("to_reach")) is not None:
                    reach = Reach(tried=digest_of(to_reach))
                if (now := time.monotonic()) <= began + length_s:
                    (back if due < began else delays).append(now - due)
            elif not head.startswith(b"HTTP/1.1 503"):  # the database was locked for too long
                raise ConnectionError((head + text).decode())
            while due < time.monotonic():
                due += every_s
        writer.close()

    await asyncio.gather(*(beat(number, *one) for number, one in enumerate(placed)))
    return sorted(back), sorted(delays)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.heartbeats")
    site_arguments(parser)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
