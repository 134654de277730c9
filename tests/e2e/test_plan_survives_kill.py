"""Real workers: one is killed in the middle of a plan run, another is told to cancel."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import psutil
import pytest

from planner import Problem, generated_cluster
from planner.serialization import problem_to_dict
from tests.e2e import blank_database
from tests.e2e.control_plane import ControlPlane
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e


def long_search(name: str) -> Problem:
    """A problem whose optimum takes any solver far longer to prove than these tests last."""
    return replace(generated_cluster(num_nodes=24, num_regions=3, seed=7), name=name)


class Searches:
    """Plan runs of a site, over REST."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        headers = {"Authorization": f"Bearer {plane.key}"}
        self.rest = httpx.Client(base_url=plane.url, headers=headers, timeout=PATIENCE_S)

    def start(self, *, name: str, time_limit_s: float) -> str:
        """Import a cluster of its own and queue a run; returns the run's URL."""
        problem = long_search(name)
        cluster = self.rest.post(
            "/api/v1/clusters/import/", json={"problem": problem_to_dict(problem)}
        )
        assert cluster.status_code == 201, cluster.text
        models = self.rest.get("/api/v1/models/", params={"name": problem.model.name}).json()
        options = {"objective": "flow", "solver": "highs", "relative_gap": 0}
        started = self.rest.post(
            "/api/v1/plan-runs/",
            json={
                "cluster": cluster.json()["id"],
                "model": models["results"][0]["id"],
                "options": {**options, "time_limit_s": time_limit_s},
            },
        )
        assert started.status_code == 202, started.text
        return started.headers["Location"]

    def once(self, url: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The run as soon as the condition holds for it."""

        def met() -> dict[str, Any] | None:
            run: dict[str, Any] = self.rest.get(url).json()
            return run if condition(run) else None

        found = until(met, f"the run {url} got there")
        assert found is not None
        return found

    def plan_of(self, run: dict[str, Any]) -> dict[str, Any]:
        plan: dict[str, Any] = self.rest.get(f"/api/v1/plans/{run['plan']}/").json()
        return plan


BACKENDS = [
    "sqlite",
    pytest.param(
        "postgres-redis", marks=[pytest.mark.postgres, pytest.mark.redis, pytest.mark.long]
    ),
]


@pytest.fixture(scope="module", params=BACKENDS)
def searches(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Searches]:
    folder, services = tmp_path_factory.mktemp("site"), {}
    if request.param == "postgres-redis":
        services["DATABASE_URL"] = request.getfixturevalue("postgres_url")
        services["REDIS_URL"] = request.getfixturevalue("redis_url")
    else:
        blank_database.put(request.getfixturevalue("blank_sqlite"), folder / "data")
    with ControlPlane.running(folder, **services) as plane:
        searches = Searches(plane)
        with searches.rest:
            yield searches


def test_a_run_whose_worker_is_killed_is_finished_by_a_second_attempt(searches: Searches) -> None:
    """On a machine that is busy a search may be over by then; the next one searches for longer."""
    for time_limit_s in (6, 20, 60):
        url = searches.start(name=f"killed-{time_limit_s}", time_limit_s=time_limit_s)
        before = searches.once(url, lambda run: _is_searching(run) or _has_ended(run))
        searches.plane.kill("worker")
        after = searches.once(url, _has_ended)
        if after["attempt"] > 1:
            break
    assert (after["status"], after["attempt"]) == ("succeeded", 2), after
    assert after["flow_tokens_per_s"] >= before["flow_tokens_per_s"]
    assert searches.plan_of(after)["document"]["format"] == "helixweb.plan/1"
    incumbents = searches.rest.get(f"{url}incumbents/", params={"limit": 1000}).json()["results"]
    assert {row["attempt"] for row in incumbents} == {1, 2}


def test_cancelling_a_running_search_keeps_its_best_so_far(searches: Searches) -> None:
    url = searches.start(name="cancelled", time_limit_s=600)
    before = searches.once(url, _is_searching)
    assert searches.rest.post(f"{url}cancel/").status_code == 202
    after = searches.once(url, _has_ended)
    assert after["status"] == "cancelled"
    plan = searches.plan_of(after)
    assert plan["flow_tokens_per_s"] >= before["flow_tokens_per_s"] > 0
    assert plan["document"]["stop_reason"] == "cancelled"


@pytest.mark.long
def test_a_worker_works_on_when_any_of_its_processes_is_killed(searches: Searches) -> None:
    worker = searches.plane.pid_of("worker")
    searches.once(searches.start(name="before", time_limit_s=1), _has_ended)
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
    url = searches.start(name="after", time_limit_s=1)
    assert searches.once(url, _has_ended)["status"] == "succeeded"
    assert searches.plane.pid_of("worker") == worker


def _is_searching(run: dict[str, Any]) -> bool:
    return run["status"] == "running" and run["flow_tokens_per_s"] is not None


def _has_ended(run: dict[str, Any]) -> bool:
    return run["finished_at"] is not None
