"""Real workers: one is killed in the middle of a plan run, another is told to cancel."""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from helixweb.demo.processes import Processes, Running, free_port
from tests.e2e import blank_database

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
PATIENCE_S = 300.0
pytestmark = pytest.mark.e2e


def long_search(name: str) -> dict[str, Any]:
    """A problem whose optimum takes any solver far longer to prove than these tests last."""
    draw = random.Random(7)
    regions = ["here", "there"]
    profiles = {
        f"gpu-{kind}": {
            "gpu": f"GPU {kind}",
            "vram_bytes": 1e9,
            "max_layers": most,
            "tokens_per_s": [draw.uniform(600, 900) / layers for layers in range(1, most + 1)],
            "kv_capacity_token_layers": [1e5] * most,
        }
        for kind, most in enumerate((4, 6, 9))
    }
    return {
        "format": "helixweb.problem/1",
        "name": name,
        "model": {
            "name": "long-search",
            "num_layers": 32,
            "activation_bytes_per_token": 16384,
            "token_bytes": 2,
            "bytes_per_layer": 1e8,
        },
        "workload": {"mean_prompt_tokens": 512, "mean_output_tokens": 128},
        "compute_profiles": profiles,
        "nodes": [
            {
                "name": f"node-{number}",
                "region": regions[number % 2],
                "compute_profile": f"gpu-{number % 3}",
            }
            for number in range(14)
        ],
        "coordinator": {"region": "here"},
        "network": {
            "region_pairs": [
                {
                    "source": source,
                    "target": target,
                    "bandwidth_bytes_per_s": 1.25e9 if source == target else 2e6,
                    "latency_s": 0.001,
                }
                for source in regions
                for target in regions
            ],
            "links": [],
        },
    }


@dataclass(slots=True, kw_only=True)
class Site:
    """A running web with its REST client; tests share a worker, unless they stop it."""

    processes: Processes
    rest: httpx.Client
    worker: Running | None = None

    def with_worker(self) -> Running:
        if self.worker is None:
            command = [PYTHON, "-m", "celery", "-A", "helixweb", "worker", "-B", "-c", "2"]
            self.worker = self.processes.start("worker", command)
        return self.worker

    def kill_worker(self) -> None:
        """And its children, by SIGKILL."""
        worker, self.worker = self.with_worker(), None
        os.killpg(worker.process.pid, signal.SIGKILL)
        self.processes.stop(worker)

    def start_run(self, *, name: str, time_limit_s: float) -> str:
        """Import a cluster of its own and queue a run; returns the run's URL."""
        cluster = self.rest.post("/api/v1/clusters/import/", json={"problem": long_search(name)})
        assert cluster.status_code == 201, cluster.text
        models = self.rest.get("/api/v1/models/", params={"name": "long-search"}).json()
        started = self.rest.post(
            "/api/v1/plan-runs/",
            json={
                "cluster": cluster.json()["id"],
                "model": models["results"][0]["id"],
                "options": {
                    "objective": "flow",
                    "time_limit_s": time_limit_s,
                    "solver": "highs",
                    "relative_gap": 0,
                },
            },
        )
        assert started.status_code == 202, started.text
        return started.headers["Location"]

    def wait_for(self, url: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The run as soon as `condition` holds for it; fails after five minutes."""
        deadline = time.monotonic() + PATIENCE_S
        run: dict[str, Any] = {}
        while time.monotonic() < deadline:
            run = self.rest.get(url).json()
            if condition(run):
                return run
            time.sleep(0.1)
        pytest.fail(f"the run did not get there: {run}")


MAKE_KEY = """
from django.contrib.auth import get_user_model
from django.core.management import call_command
from helixweb.common.api_keys import create_api_key
call_command("migrate", verbosity=0)
ada = get_user_model().objects.create_superuser("ada")
print(create_api_key(name="e2e", user=ada, scopes=["read", "write"]).secret)
"""
BACKENDS = [
    "sqlite",
    pytest.param(
        "postgres-redis", marks=[pytest.mark.postgres, pytest.mark.redis, pytest.mark.long]
    ),
]


@pytest.fixture(scope="module", params=BACKENDS)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    tmp_path = tmp_path_factory.mktemp("site")
    url = f"http://127.0.0.1:{free_port()}"
    environment = {
        "HELIX_DATA_DIR": str(tmp_path / "data"),
        "HELIX_URL": url,
        "OMP_NUM_THREADS": "1",
        "DATABASE_URL": "",
        "REDIS_URL": "",
    }
    if request.param == "postgres-redis":
        environment["DATABASE_URL"] = request.getfixturevalue("postgres_url")
        environment["REDIS_URL"] = request.getfixturevalue("redis_url")
    else:
        blank_database.put(request.getfixturevalue("blank_sqlite"), tmp_path / "data")
    with Processes(log_dir=tmp_path / "logs", cwd=ROOT, env=environment) as processes:
        key = processes.run("apikey", [PYTHON, "manage.py", "shell", "-v0", "-c", MAKE_KEY]).strip()
        port = url.rpartition(":")[2]
        processes.start(
            "web", [PYTHON, "-m", "uvicorn", "helixweb.asgi:application", "--port", port]
        )
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as rest:
            _wait_until_ready(processes, rest)
            yield Site(processes=processes, rest=rest)


def _wait_until_ready(processes: Processes, rest: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        processes.check_alive()
        with contextlib.suppress(httpx.TransportError):
            if rest.get("/readyz").status_code == 200:
                return
        time.sleep(0.2)
    pytest.fail("the web did not become ready")


def run_of_killed_worker(site: Site, name: str) -> tuple[str, dict[str, Any]]:
    """A run that was searching when its worker was killed, and what it had found shortly before.

    On a machine that is busy a search may be over by then; the next one may search for longer.
    """
    for time_limit_s in (6, 20, 60):
        site.with_worker()
        url = site.start_run(name=f"{name}-{time_limit_s}", time_limit_s=time_limit_s)
        before = site.wait_for(url, lambda run: _is_searching(run) or _has_ended(run))
        site.kill_worker()
        if site.rest.get(url).json()["status"] == "running":
            return url, before
    pytest.fail("every search was over before its worker was killed")


def _is_searching(run: dict[str, Any]) -> bool:
    return run["status"] == "running" and run["flow_tokens_per_s"] is not None


def test_a_run_whose_worker_is_killed_is_finished_by_a_second_attempt(
    site: Site, tmp_path: Path
) -> None:
    url, before = run_of_killed_worker(site, f"killed-{tmp_path.name}")

    site.with_worker()
    after = site.wait_for(url, _has_ended)
    assert (after["status"], after["attempt"]) == ("succeeded", 2), after
    assert after["flow_tokens_per_s"] >= before["flow_tokens_per_s"]
    plan = site.rest.get(f"/api/v1/plans/{after['plan']}/").json()
    assert plan["document"]["format"] == "helixweb.plan/1"
    incumbents = site.rest.get(f"{url}incumbents/", params={"limit": 1000}).json()["results"]
    assert {row["attempt"] for row in incumbents} == {1, 2}


def test_cancelling_a_running_search_keeps_its_best_so_far(site: Site, tmp_path: Path) -> None:
    site.with_worker()
    url = site.start_run(name=f"cancelled-{tmp_path.name}", time_limit_s=600)
    before = site.wait_for(url, _is_searching)
    assert site.rest.post(f"{url}cancel/").status_code == 202
    after = site.wait_for(url, _has_ended)
    assert after["status"] == "cancelled"
    plan = site.rest.get(f"/api/v1/plans/{after['plan']}/").json()
    assert plan["flow_tokens_per_s"] >= before["flow_tokens_per_s"] > 0
    assert plan["document"]["stop_reason"] == "cancelled"


def test_a_worker_works_on_when_any_of_its_processes_is_killed(site: Site, tmp_path: Path) -> None:
    worker = site.with_worker()
    site.wait_for(site.start_run(name=f"before-{tmp_path.name}", time_limit_s=1), _has_ended)
    killed: set[int] = set()
    while len(killed) < 6:  # each may be the one that waits for work
        for child in idle_processes(worker, known=killed):
            killed.add(child.pid)
            child.kill()
    url = site.start_run(name=f"after-{tmp_path.name}", time_limit_s=1)
    assert site.wait_for(url, _has_ended)["status"] == "succeeded"


def _has_ended(run: dict[str, Any]) -> bool:
    return run["finished_at"] is not None


def idle_processes(worker: Running, *, known: set[int]) -> list[psutil.Process]:
    """The worker's own processes but its beat, as soon as two are there that are not `known`."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        children = psutil.Process(worker.process.pid).children()
        pool = [child for child in children if child.pid not in known and not _is_beat(child)]
        if len(pool) >= 2:
            return pool
        time.sleep(0.1)
    pytest.fail("the worker never had two processes")


def _is_beat(process: psutil.Process) -> bool:
    """Not what has ended meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "beat" in " ".join(process.cmdline()).lower()
    return False
