"""Whole-model instances and a pipeline beside them, from Compute to an answer behind one
coordinator, and on when an instance is killed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from helixweb.demo import local_cluster
from helixweb.demo.local_cluster import LocalNode
from helixweb.demo.scenario import PATIENCE_S, Scenario, answers_ok
from helixweb.demo.site import Site
from runtime.models.config import read_config
from runtime.profiler.main import model_numbers
from tests.e2e.browsed_site import children_with, scenario_in

WHOLE, HALVES = ("left", "right"), ("lower", "upper")
NODES = tuple(
    LocalNode(name=name, memory_bytes=60_000_000, relative_speed=1.0) for name in (*WHOLE, *HALVES)
)
AT_ONCE = 12  # requests of which the router gives some to each

pytestmark = pytest.mark.e2e


@pytest.fixture
def scenario(tmp_path: Path, trained_models: Path, blank_sqlite: Path) -> Iterator[Scenario]:
    with scenario_in(tmp_path, trained_models, blank_sqlite) as scenario:
        scenario.start_web()
        scenario.login_link()
        yield scenario


def test_instances_and_pipelines_survive_a_kill(
    scenario: Scenario,
) -> None:
    site, key = scenario.connect()
    headers = {"Authorization": f"Bearer {key}"}
    http = httpx.Client(headers=headers, timeout=PATIENCE_S)
    try:
        cluster_id = import_cluster(site, scenario.make_checkpoint())
        scenario.start_coordinator(site, cluster_id)
        for node in NODES:
            scenario.start_agent(site, cluster_id, node)
        scenario._wait("all are online", lambda: are_online(site, cluster_id))
        plan = computed(scenario, site, cluster_id)
        assert [one["name"] for one in plan["document"]["instances"]] == list(WHOLE)
        assert set(plan["document"]["placement"]) == {*WHOLE, *HALVES}
        deployment = deployed(scenario, site, plan["id"])
        assert {row["phase"] for row in deployment["assignments"]} == {"ready"}
        said = answers_of_all(scenario, http)
        assert said.keys() == {*WHOLE, "pipelines"}
        assert len(set(said.values())) == 1
        killed = kill_instance(scenario, "left")
        after = ask(scenario, http)
        assert after.headers["x-helix-instance"] != "left"
        assert words_of(after) in said.values()
        scenario._wait(
            "the site told of it, and the agent started it again",
            lambda: was_restarted(scenario, site, deployment["id"], "left", killed),
        )
    finally:
        site.close()
        http.close()


def answers_of_all(scenario: Scenario, http: httpx.Client) -> dict[str, str]:
    """What each of them says, once every one was asked by the router."""
    said: dict[str, str] = {}

    def all_have_answered() -> bool:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for answer in pool.map(lambda _: ask(scenario, http), range(AT_ONCE)):
                said[answer.headers["x-helix-instance"]] = words_of(answer)
        return said.keys() >= {*WHOLE, "pipelines"}

    scenario._wait("all have answered", all_have_answered)
    return said


def words_of(answer: httpx.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def import_cluster(site: Site, checkpoint: Path) -> int:
    """Two machines that hold the model and two that hold half, with made-up speeds: what they write
    is not measured here."""
    numbers = model_numbers(local_cluster.TINY.name, read_config(checkpoint))
    layers = numbers["num_layers"]

    def profile(most: int) -> dict[str, Any]:
        return {
            "gpu": "CPU",
            "vram_bytes": NODES[0].memory_bytes,
            "max_layers": most,
            "tokens_per_s": [1000.0 / held for held in range(1, most + 1)],
            "kv_capacity_token_layers": [16000.0 - 400 * held for held in range(1, most + 1)],
            "instance_times": {"1": {"prefill": [1e-4, 0, 0, 1e-3], "decode": [0, 2e-3, 0, 1e-3]}},
        }

    document = local_cluster.problem(local_cluster.TINY, {"model": numbers, "compute_profiles": {}})
    document |= {
        "compute_profiles": {"whole": profile(layers), "half": profile((layers + 1) // 2)},
        "nodes": [
            {
                "name": node.name,
                "region": local_cluster.REGION,
                "compute_profile": "whole" if node.name in WHOLE else "half",
            }
            for node in NODES
        ],
    }
    cluster_id = int(site.post("clusters/import/", {"problem": document})["id"])
    (model,) = site.results("models/")
    site.patch(
        f"models/{model['id']}/",
        {"checkpoint": str(checkpoint), "max_context_tokens": 512},
    )
    return cluster_id


def are_online(site: Site, cluster_id: int) -> bool:
    """Both nodes and the coordinator."""
    kinds = (site.results(kind, cluster=cluster_id) for kind in ("nodes/", "coordinators/"))
    return all({row["state"] for row in rows} == {"online"} for rows in kinds)


def computed(scenario: Scenario, site: Site, cluster_id: int) -> dict[str, Any]:
    (model,) = site.results("models/")
    options = {"method": "mixed", "time_limit_s": 2}
    run = site.post("plan-runs/", {"cluster": cluster_id, "model": model["id"], "options": options})

    def has_ended() -> bool:
        return site.get(f"plan-runs/{run['id']}/")["status"] not in ("queued", "running")

    scenario._wait("the plan is computed", has_ended)
    run = site.get(f"plan-runs/{run['id']}/")
    assert run["status"] == "succeeded", run["error"]
    return dict(site.get(f"plans/{run['plan']}/"))


def deployed(scenario: Scenario, site: Site, plan_id: int) -> dict[str, Any]:
    asked = site.post("deployments/", {"plan": plan_id, "max_context_tokens": 256})

    def is_ready() -> bool:
        status = site.get(f"deployments/{asked['id']}/")["status"]
        assert status in ("deploying", "ready"), site.get(f"deployments/{asked['id']}/")["message"]
        return status == "ready" and answers_ok(scenario.places.coordinator_url)

    scenario._wait("the deployment is ready", is_ready)
    return dict(site.get(f"deployments/{asked['id']}/"))


def ask(scenario: Scenario, http: httpx.Client) -> httpx.Response:
    answer = http.post(
        f"{scenario.places.coordinator_url}/v1/chat/completions",
        json={
            "model": local_cluster.TINY.name,
            "messages": [{"role": "user", "content": local_cluster.TINY.questions[0]}],
            "temperature": 0,
            "max_tokens": 8,
        },
    )
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer


def kill_instance(scenario: Scenario, node: str) -> int:
    (server,) = children_with(scenario.nodes[node], " serve ")
    server.kill()
    return server.pid


def was_restarted(
    scenario: Scenario, site: Site, deployment_id: int, node: str, killed: int
) -> bool:
    """Another process runs, and its phases say that it was not ready in between."""
    if {server.pid for server in children_with(scenario.nodes[node], " serve ")} - {
        killed
    } == set():
        return False
    rows = site.get(f"deployments/{deployment_id}/timeline/")["rows"]
    phases = [word for row in rows if node in row for word in row]
    if phases.count("ready") < 2:
        return False
    deployment = site.get(f"deployments/{deployment_id}/")
    (row,) = [row for row in deployment["assignments"] if row["node_name"] == node]
    (instance,) = row["observed_instances"]
    return deployment["status"] == "ready" and instance["condition"] == "ready"
