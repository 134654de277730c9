"""Ranks asked of the web are processes of the node, and the answer stays the whole model's."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helixweb.demo.check import Reference
from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import MAX_TOKENS, QUESTION, Places, Scenario, Timings

ROOT = Path(__file__).resolve().parents[2]
NODE = "tower"

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


def test_a_node_deployed_with_two_ranks_answers_as_the_whole_model(
    scenario: Scenario, tmp_path: Path
) -> None:
    site, key = scenario.connect()
    checkpoint = scenario.make_checkpoint()
    reference = Reference(
        checkpoint=checkpoint.path,
        questions=[QUESTION],
        max_tokens=MAX_TOKENS,
        log=tmp_path / "reference.log",
        cwd=ROOT,
    )
    try:
        cluster_id = scenario.ensure_cluster(site, checkpoint)
        scenario.start_nodes(site, cluster_id)
        plan = scenario.ensure_plan(site, cluster_id)
        options = {"plan": plan["id"], "tensor_parallel_by_node": {NODE: 2}}
        asked = site.post("deployments/", options)
        deployment = scenario.ensure_deployed(site, cluster_id, plan["id"])
        assert deployment["id"] == asked["id"]
        told = {row["node_name"]: row["tensor_parallel"] for row in deployment["assignments"]}
        assert told == dict.fromkeys(told, 1) | {NODE: 2}
        assert {name: ranks_run_by(scenario, name) for name in told} == told
        (expected,) = reference.token_ids()
        assert scenario.ask(key)["choices"][0]["token_ids"] == expected
    finally:
        reference.stop()
        site.close()


def ranks_run_by(scenario: Scenario, node: str) -> int:
    """The stage itself, and its children that follow it."""
    agent = psutil.Process(scenario.nodes[node].process.pid)
    (stage,) = [child for child in agent.children() if child.cmdline()[-2:] == ["runtime", "stage"]]
    followers = [child for child in stage.children() if "spawn_main" in " ".join(child.cmdline())]
    return 1 + len(followers)
