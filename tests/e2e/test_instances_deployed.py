"""Whole-model instances from Compute to an answer, and on when one of them is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from helixweb.demo import local_cluster
from helixweb.demo.local_cluster import Checkpoint, LocalNode
from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import QUESTION, Places, Scenario, Timings, answers_ok
from helixweb.demo.site import Site

ROOT = Path(__file__).resolve().parents[2]
NODES = tuple(
    LocalNode(name=name, memory_bytes=60_000_000, relative_speed=1.0) for name in ("left", "right")
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def scenario(tmp_path: Path, trained_models: Path) -> Iterator[Scenario]:
    places = Places(
        data_dir=tmp_path,
        models_dir=trained_models,
        web_port=free_port(),
        coordinator_port=free_port(),
    )
    env = {**places.env, "DATABASE_URL": "", "REDIS_URL": ""}
    with Processes(log_dir=tmp_path / "logs", cwd=ROOT, env=env) as processes:
        scenario = Scenario(places, processes, Timings())
        scenario.start_web()
        scenario.login_link()
        yield scenario


def test_an_instance_is_killed_and_the_next_answer_is_served(scenario: Scenario) -> None:
    site, key = scenario.connect()
    try:
        cluster_id = import_cluster(site, scenario.make_checkpoint())
        scenario.start_coordinator(site, cluster_id)
        for node in NODES:
            scenario.start_agent(site, cluster_id, node)
        scenario._wait("all are online", lambda: are_online(site, cluster_id), timeout_s=60)
        plan = computed(scenario, site, cluster_id)
        assert [one["name"] for one in plan["document"]["instances"]] == ["left", "right"]
        deployment = deployed(scenario, site, plan["id"])
        assert {row["phase"] for row in deployment["assignments"]} == {"ready"}
        first = ask(scenario, key)
        served_by = first.headers["x-helix-instance"]
        killed = kill_instance(scenario, served_by)
        second = ask(scenario, key)
        other = {"left": "right", "right": "left"}[served_by]
        assert second.headers["x-helix-instance"] == other
        said = [one.json()["choices"][0]["message"]["content"] for one in (first, second)]
        assert said[0] == said[1]
        scenario._wait(
            "the site told of it, and the agent started it again",
            lambda: was_restarted(scenario, site, deployment["id"], served_by, killed),
            timeout_s=60,
        )
    finally:
        site.close()


def import_cluster(site: Site, checkpoint: Checkpoint) -> int:
    """Machines that hold the model, with made-up speeds: what they write is not measured here."""
    layers = checkpoint.num_layers
    profile = {
        "gpu": "CPU",
        "vram_bytes": NODES[0].memory_bytes,
        "max_layers": layers,
        "tokens_per_s": [1000.0 / held for held in range(1, layers + 1)],
        "kv_capacity_token_layers": [8000.0 - 400 * held for held in range(1, layers + 1)],
    }
    document = local_cluster.problem(checkpoint, {})
    document |= {
        "compute_profiles": {"cpu": profile},
        "nodes": [
            {"name": node.name, "region": local_cluster.REGION, "compute_profile": "cpu"}
            for node in NODES
        ],
    }
    cluster_id = int(site.post("clusters/import/", {"problem": document})["id"])
    (model,) = site.results("models/")
    site.patch(
        f"models/{model['id']}/",
        {"checkpoint": str(checkpoint.path), "max_context_tokens": 512},
    )
    return cluster_id


def are_online(site: Site, cluster_id: int) -> bool:
    """Both nodes and the coordinator."""
    kinds = (site.results(kind, cluster=cluster_id) for kind in ("nodes/", "coordinators/"))
    return all({row["state"] for row in rows} == {"online"} for rows in kinds)


def computed(scenario: Scenario, site: Site, cluster_id: int) -> dict[str, Any]:
    (model,) = site.results("models/")
    options = {"method": "instances", "time_limit_s": 5}
    run = site.post("plan-runs/", {"cluster": cluster_id, "model": model["id"], "options": options})

    def has_ended() -> bool:
        return site.get(f"plan-runs/{run['id']}/")["status"] not in ("queued", "running")

    scenario._wait("the plan is computed", has_ended, timeout_s=60)
    run = site.get(f"plan-runs/{run['id']}/")
    assert run["status"] == "succeeded", run["error"]
    return dict(site.get(f"plans/{run['plan']}/"))


def deployed(scenario: Scenario, site: Site, plan_id: int) -> dict[str, Any]:
    asked = site.post("deployments/", {"plan": plan_id, "max_context_tokens": 256})

    def is_ready() -> bool:
        status = site.get(f"deployments/{asked['id']}/")["status"]
        assert status in ("deploying", "ready"), site.get(f"deployments/{asked['id']}/")["message"]
        return status == "ready" and answers_ok(scenario.places.coordinator_url)

    scenario._wait("the deployment is ready", is_ready, timeout_s=120)
    return dict(site.get(f"deployments/{asked['id']}/"))


def ask(scenario: Scenario, key: str) -> httpx.Response:
    answer = httpx.post(
        f"{scenario.places.coordinator_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={
            "model": local_cluster.MODEL,
            "messages": [{"role": "user", "content": QUESTION}],
            "temperature": 0,
            "max_tokens": 8,
        },
        timeout=60,
    )
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer


def servers_of(scenario: Scenario, node: str) -> list[psutil.Process]:
    agent = psutil.Process(scenario.nodes[node].process.pid)
    return [child for child in agent.children() if "serve" in child.cmdline()]


def kill_instance(scenario: Scenario, node: str) -> int:
    (server,) = servers_of(scenario, node)
    server.kill()
    return server.pid


def was_restarted(
    scenario: Scenario, site: Site, deployment_id: int, node: str, killed: int
) -> bool:
    """Another process runs, and its phases say that it was not ready in between."""
    if {server.pid for server in servers_of(scenario, node)} - {killed} == set():
        return False
    rows = site.get(f"deployments/{deployment_id}/timeline/")["rows"]
    phases = [word for row in rows if node in row for word in row]
    if phases.count("ready") < 2:
        return False
    deployment = site.get(f"deployments/{deployment_id}/")
    (row,) = [row for row in deployment["assignments"] if row["node_name"] == node]
    (instance,) = row["observed_instances"]
    return deployment["status"] == "ready" and instance["condition"] == "ready"
