"""Real workers: one is killed in the middle of a plan run, another has to cancel; one that is
killed leaves nothing behind, beat least of all, since the next one brings its own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from helixweb.demo.processes import Processes
from helixweb.demo.scenario import WORKER_COMMAND
from planner import generated_cluster
from planner.serialization import problem_to_dict
from tests.e2e import blank_database
from tests.e2e.control_plane import ControlPlane
from tests.programs import ROOT, run_python
from tests.runtime.ended import has_ended
from tests.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(
    services: dict[str, str], tmp_path_factory: pytest.TempPathFactory, blank_sqlite: Path
) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("site")
    if not services:
        blank_database.put(blank_sqlite, folder / "data")
    with ControlPlane.running(folder, **services) as running:
        yield running


def start(plane: ControlPlane, name: str, *, time_limit_s: float) -> str:
    """Import a cluster of its own and queue a run of which any solver takes far longer to prove the
    optimum than these tests last; returns the run's path."""
    problem = replace(generated_cluster(num_nodes=24, num_regions=3, seed=7), name=name)
    cluster = plane.person.import_cluster(problem_to_dict(problem), name=name)
    (model,) = plane.person.rows("models/", name=problem.model.name)
    options = {"time_limit_s": time_limit_s, "relative_gap": 0}
    return f"plan-runs/{plane.person.start_plan(cluster, model['id'], **options)}/"


def once(
    plane: ControlPlane, path: str, condition: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The run as soon as the condition holds for it."""

    def met() -> dict[str, Any] | None:
        run: dict[str, Any] = plane.person.look(path)
        return run if condition(run) else None

    found = until(met, f"the run {path} got there")
    assert found is not None
    return found


def test_a_run_whose_worker_is_killed_is_finished_by_a_second_attempt(plane: ControlPlane) -> None:
    """On a machine that is busy a search may be over by then; the next one searches for longer."""
    for time_limit_s in (6, 20, 60):
        path = start(plane, f"killed-{time_limit_s}", time_limit_s=time_limit_s)
        before = once(plane, path, lambda run: _is_searching(run) or _has_ended(run))
        plane.kill("worker")
        after = once(plane, path, _has_ended)
        if after["attempt"] > 1:
            break
    assert (after["status"], after["attempt"]) == ("succeeded", 2), after
    assert after["flow_tokens_per_s"] >= before["flow_tokens_per_s"]
    assert plane.person.look(f"plans/{after['plan']}/")["document"]["format"] == "helixweb.plan/1"
    incumbents = plane.person.rows(f"{path}incumbents/")
    assert {row["attempt"] for row in incumbents} == {1, 2}


def test_cancelling_a_running_search_keeps_its_best_so_far(plane: ControlPlane) -> None:
    path = start(plane, "cancelled", time_limit_s=600)
    before = once(plane, path, _is_searching)
    plane.person.insist("POST", f"{path}cancel/", done=lambda: False)
    after = once(plane, path, _has_ended)
    assert after["status"] == "cancelled"
    plan = plane.person.look(f"plans/{after['plan']}/")
    assert plan["flow_tokens_per_s"] >= before["flow_tokens_per_s"] > 0
    assert plan["document"]["stop_reason"] == "cancelled"


@pytest.mark.long
def test_a_worker_works_on_when_any_of_its_processes_is_killed(plane: ControlPlane) -> None:
    worker = plane.pid_of("worker")
    once(plane, start(plane, "before", time_limit_s=1), _has_ended)
    killed: set[int] = set()

    def pool() -> list[psutil.Process]:
        """The worker's processes, as soon as two are there that were not killed."""
        children = psutil.Process(worker).children()
        alive = [child for child in children if child.pid not in killed]
        return alive if len(alive) >= 2 else []

    while len(killed) < 6:  # each may be the one that waits for work
        for child in until(pool, "the worker has two processes"):
            killed.add(child.pid)
            child.kill()
    path = start(plane, "after", time_limit_s=1)
    assert once(plane, path, _has_ended)["status"] == "succeeded"
    assert plane.pid_of("worker") == worker


def _is_searching(run: dict[str, Any]) -> bool:
    return run["status"] == "running" and run["flow_tokens_per_s"] is not None


def _has_ended(run: dict[str, Any]) -> bool:
    return run["finished_at"] is not None


ORPHAN = """
import os, time
from helixweb import celery
worker = os.getpid()
celery.remember_the_worker()
if os.fork() == 0:
    while os.getppid() == worker:
        time.sleep(0.01)
    celery.end_with_the_worker()
    time.sleep(600)  # longer than is waited for; where beat is not ended, it ends by itself
"""


def test_the_processes_of_a_killed_worker_end(tmp_path: Path, blank_sqlite: Path) -> None:
    env = {"HELIX_DATA_DIR": str(tmp_path / "web"), "DATABASE_URL": "", "REDIS_URL": ""}
    blank_database.put(blank_sqlite, tmp_path / "web")
    with Processes(log_dir=tmp_path / "logs", cwd=ROOT, env=env) as processes:
        command = [*WORKER_COMMAND, "--concurrency", "1"]
        worker = psutil.Process(processes.start("worker", command).process.pid)
        until(lambda: len(worker.children()) >= 2, "beat runs, and one that runs tasks")
        children = worker.children()
        worker.kill()
        until(lambda: all(has_ended(child) for child in children), "all have ended")


def test_beat_ends_that_begins_after_its_worker_was_killed(tmp_path: Path) -> None:
    """A reader of its output waits until every process that may write has ended."""
    run_python("-c", ORPHAN, environ={"HELIX_DATA_DIR": str(tmp_path)})
