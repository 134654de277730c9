"""How long one web process takes to answer lists of 100 rows over REST, beside plain Django.

    python -m benchmarks.web.api_lists --data-dir DIR [--database-url URL] [--seconds S]
        [--connections N] [--role viewer] [LIST ...]

Fills a new site under DIR, starts one web process and asks for lists over N open connections with
an API key that may read. `--role viewer`: the key's owner may see one cluster and is no superuser.
Beside each list stands plain Django in a process of its own, under the same server, with the
middleware of `startproject`: a view that returns the same columns by `values()` and JsonResponse to
anyone; it looks up no key and counts no rows. The client shares the machine.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import Popen

import httpx
import psutil

from benchmarks.web.opening import ROOT, open_site, site_arguments, site_environment
from helixweb.demo.processes import free_port

LISTS = ("nodes", "links", "changes", "plan-runs", "requests")
ROWS = 100
WANTED_P95_S = 0.04
PATIENCE_S = 60.0
# Settings, and what uvicorn is told to serve.
OURS = ("helixweb.settings", "helixweb.asgi:application")
DJANGO = ("benchmarks.web.plain_settings", "django.core.asgi:get_asgi_application", "--factory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    per_s: float
    p50_s: float
    p95_s: float
    cpu_ms: float
    size: int


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    key = _filled(arguments)
    missed = []
    print(
        f"{'list':>10} {'of':>6} {'reads/s':>8} {'p50 ms':>7} {'p95 ms':>7} {'CPU ms':>7} {'kB':>5}"
    )
    with _web(arguments, *OURS) as ours, _web(arguments, *DJANGO) as plain:
        for name in arguments.lists or LISTS:
            django = _measured_list(plain, f"/plain/{name}/", key, arguments)
            result = _measured_list(ours, f"/api/v1/{name}/", key, arguments)
            for of, one in (("plain", django), ("ours", result)):
                print(
                    f"{name:>10} {of:>6} {one.per_s:8.0f} {1e3 * one.p50_s:7.1f} "
                    f"{1e3 * one.p95_s:7.1f} {one.cpu_ms:7.2f} {one.size / 1e3:5.0f}",
                    flush=True,
                )
            if result.p95_s > WANTED_P95_S:
                missed.append(name)
    print(f"Above {1e3 * WANTED_P95_S:.0f} ms at p95: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def _measured_list(served: "Served", path: str, key: str, arguments: argparse.Namespace) -> Result:
    request = (
        f"GET {path}?limit={ROWS} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        f"Authorization: Bearer {key}\r\n\r\n"
    )
    return asyncio.run(_measured(served, request, arguments))


def _filled(arguments: argparse.Namespace) -> str:
    """A key for a site with more rows than are asked for."""
    from django.utils import timezone

    from benchmarks.web import rows
    from helixweb.access.models import Grant
    from helixweb.common.api_keys import create_api_key
    from helixweb.inventory.as_code.importing import import_problem
    from helixweb.inventory.models import Cluster, Link, Node
    from helixweb.inventory.services import problems, records
    from helixweb.monitoring.services import record_traces
    from helixweb.planning.models import PlanRun
    from helixweb.planning.options import options_to_json
    from planner.serialization import problem_from_dict
    from tests.helixweb.conftest import TINY_PROBLEM
    from tests.helixweb.request_traces import made_up_trace

    user = rows.user()
    user.is_superuser = arguments.role == "superuser"
    user.save()
    if not Cluster.unscoped.filter(name="lists").exists():
        cluster = import_problem(problem_from_dict(TINY_PROBLEM), cluster_name="lists")
        model = problems.models_of(cluster)[0]
        now = timezone.now()
        for number in range(ROWS + 20):
            node = records.create(
                Node, cluster=cluster, name=f"node-{number}", region="home", profile_name="big",
                joined_at=now, last_seen_at=now, version="0.1.0", hardware=HARDWARE,
            )  # fmt: skip
            node.tags.create(name=f"rack-{number % 7}")
            records.create(
                Link, cluster=cluster, source=node.name, target="tower",
                bandwidth_bytes_per_s=1e9, latency_s=0.001,
            )  # fmt: skip
            PlanRun.objects.create(
                cluster=cluster, model=model, problem={}, options=options_to_json(rows.OPTIONS),
                status="succeeded", created_by=user, flow_tokens_per_s=90.0,
                upper_bound_tokens_per_s=100.0,
            )  # fmt: skip
        traces = [made_up_trace(number) for number in range(ROWS + 20)]
        record_traces(cluster.pk, traces)
    Grant.objects.filter(user=user).delete()
    if arguments.role == "viewer":
        Grant.objects.create(user=user, cluster=Cluster.unscoped.get(name="lists"), role="viewer")
    return create_api_key(name="lists", user=user, scopes=["read"]).secret


HARDWARE = {
    "hostname": "node", "cpu_count": 64, "memory_bytes": 2.7e11, "memory_budget_bytes": 2e11,
    "gpus": [{"name": "A100", "memory_bytes": 4.2e10}] * 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    port: int
    process: psutil.Process


@contextmanager
def _web(
    arguments: argparse.Namespace, settings: str, application: str, *more: str
) -> Iterator[Served]:
    port = free_port()
    command = [
        sys.executable, "-m", "uvicorn", application, *more, "--host", "127.0.0.1",
        "--port", str(port), "--log-level", "warning", "--no-access-log", "--lifespan", "off",
    ]  # fmt: skip
    env = {**os.environ, **site_environment(arguments), "DJANGO_SETTINGS_MODULE": settings}
    web = Popen(command, cwd=ROOT, env=env)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(port):
            if web.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the web process does not answer")
            time.sleep(0.2)
        yield Served(port=port, process=psutil.Process(web.pid))
    finally:
        web.terminate()
        web.wait()


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
    except httpx.TransportError:
        return False
    return True


async def _measured(served: Served, text: str, arguments: argparse.Namespace) -> Result:
    request, process = text.encode(), served.process
    connections = [await _Connection.opened(served.port) for _ in range(arguments.connections)]
    body = b""
    for connection in connections * 10:  # what the first answers load is not counted
        body = await connection.ask(request)
    count = len(json.loads(body)["results"])
    if count != ROWS:
        raise SystemExit(f"{text.splitlines()[0]} gave {count} rows")
    times: list[float] = []
    began, cpu = time.perf_counter(), sum(process.cpu_times()[:2])
    until = began + arguments.seconds
    await asyncio.gather(*(connection.go_on(request, until, times) for connection in connections))
    took, cpu = time.perf_counter() - began, sum(process.cpu_times()[:2]) - cpu
    for connection in connections:
        connection.close()
    times.sort()
    return Result(
        per_s=len(times) / took,
        p50_s=times[len(times) // 2],
        p95_s=times[int(0.95 * len(times))],
        cpu_ms=1e3 * cpu / len(times),
        size=len(body),
    )


class _Connection:
    """One that is kept, and asks again once it has its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def opened(cls, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))

    async def go_on(self, request: bytes, until: float, times: list[float]) -> None:
        while (began := time.perf_counter()) < until:
            await self.ask(request)
            times.append(time.perf_counter() - began)

    async def ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode())
        length = next(
            int(line.partition(b":")[2])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length:")
        )
        return await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.api_lists", description=__doc__)
    site_arguments(parser)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--role", choices=("superuser", "viewer"), default="superuser")
    parser.add_argument("lists", nargs="*", metavar="LIST", help=f"of: {', '.join(LISTS)}")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
