"""Ranks and engines of nodes: asked of the web, checked there, told to the agents."""

from typing import Any

import pytest
from django.test import Client
from django.utils import translation
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment
from helixweb.inventory.engines import choice_of, why_text
from helixweb.inventory.models import Change, Node
from helixweb.inventory.services.problems import build_problem
from planner.domain.errors import InvalidProblem
from runtime.checkpoints.engine_fit import offers_of
from runtime.protocol.control import Gpu
from runtime.protocol.engines import Engine, EngineOffer, EngineSettings
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, denied, tight
from tests.helixweb.process_doubles import HARDWARE as OF_DOUBLES
from tests.helixweb.process_doubles import STATS, FakeCluster

pytestmark = pytest.mark.usefixtures("time_stands_still")

HARDWARE: dict[str, Any] = {**OF_DOUBLES, "gpus": []}
GPU = Gpu(name="L4", memory_bytes=24_000_000).model_dump(mode="json")
ON_CPU = EngineOffer(engine=Engine.VLLM, platform="cpu", quantizations=("awq-4bit",))


def announced(*, vllm: EngineOffer | None = ON_CPU, engine: Engine = Engine.AUTO) -> dict[str, Any]:
    """Hardware of a node without GPUs. `vllm` None: it is not installed."""
    offers = offers_of(EngineSettings(python="" if vllm is None else "/python", vllm=vllm))
    told = [offer.model_dump(mode="json") for offer in offers]
    return {**HARDWARE, "engines": told, "engine": engine.value}


@pytest.fixture
def joined(joined: FakeCluster) -> FakeCluster:
    Node.unscoped.update(hardware=announced())
    return joined


def set_up(joined: FakeCluster, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(joined.model, name, value)
    joined.model.save()


def deploy(joined: FakeCluster, api: APIClient, **options: Any) -> dict[str, Any]:
    answer = answered(api.post("/api/v1/deployments/", {"plan": joined.plan.pk, **options}), 202)
    return dict(answer.json())


def told(joined: FakeCluster, what: str) -> dict[str, Any]:
    wanted = {name: agent.desired().assignment for name, agent in joined.used_agents.items()}
    return {name: getattr(each, what) for name, each in wanted.items() if each is not None}


def test_agents_get_one_rank_and_no_engine_by_default(joined: FakeCluster, api: APIClient) -> None:
    """Those of an earlier release refuse the field of the engine."""
    assert deploy(joined, api)["tensor_parallel"] == 1
    for agent in joined.used_agents.values():
        assignment = agent.http.get("/api/v1/agent/desired").json()["assignment"]
        assert assignment["tensor_parallel"] == 1
        assert "engine" not in assignment


def test_options_of_nodes_count_before_all_others(joined: FakeCluster, api: APIClient) -> None:
    set_up(joined, engine="helix")
    first, *others = joined.used_agents
    joined.deploy()
    assert told(joined, "engine") == dict.fromkeys([first, *others], Engine.HELIX)
    asked = {"engine": "vllm", "engine_by_node": {first: "auto"}}
    asked |= {"tensor_parallel": 2, "tensor_parallel_by_node": {first: 1}}
    shown = deploy(joined, api, **asked)
    assert told(joined, "engine") == {first: Engine.AUTO} | dict.fromkeys(others, Engine.VLLM)
    assert told(joined, "tensor_parallel") == {first: 1} | dict.fromkeys(others, 2)
    assert {key: shown[key] for key in asked} == asked
    ranks = {row["node_name"]: row["tensor_parallel"] for row in shown["assignments"]}
    assert ranks == told(joined, "tensor_parallel")
    newest = Change.unscoped.filter(kind="deployment").latest("pk")
    assert newest.after["engine"] == "vllm"


def test_options_of_nodes_are_taken_and_shown(browser: Client, joined: FakeCluster) -> None:
    first = next(iter(joined.used_agents))
    typed = {"engine": "helix", "engine_by_node": f" {first}=vllm "}
    typed["tensor_parallel_by_node"] = f" {first}=2, "
    answer = answered(browser.post(f"/deployments/new?plan={joined.plan.pk}", typed), 302)
    assert told(joined, "engine")[first] is Engine.VLLM
    assert told(joined, "tensor_parallel")[first] == 2
    page = tight(browser.get(answer["Location"]).content.decode())
    assert page.count("2 ranks</span>") == 1
    contains(page, f"none; {first}: 2 ranks</dd>", f"helix; {first}: vllm</dd>")


@pytest.mark.parametrize(
    ("field", "typed", "why"),
    [
        ("tensor_parallel_by_node", "gpu-a", "gpu-a=: A valid integer"),
        ("tensor_parallel_by_node", "gpu-a=two", "gpu-a=two: A valid integer"),
        ("tensor_parallel_by_node", "=2", "does not say which node"),
        ("tensor_parallel_by_node", "gpu-a=0", "gpu-a=0: Ensure"),
        ("tensor_parallel_by_node", "gpu-a=65", "gpu-a=65: Ensure"),
        ("tensor_parallel_by_node", f"gpu-a={'9' * 5000}", "too large"),
        ("tensor_parallel_by_node", "gpu-a=2 gpu-a=4", "is there twice"),
        ("engine_by_node", "gpu-a", "gpu-a=: "),
        ("engine_by_node", "gpu-a=transformers", "is not a valid choice"),
        ("engine_by_node", "=vllm", "does not say which node"),
        ("engine_by_node", "gpu-a=vllm gpu-a=helix", "is there twice"),
        ("kv_high_water", "7", "less than or equal to 1"),
    ],
)
def test_what_is_no_option_is_refused_beside_its_field(
    browser: Client, joined: FakeCluster, field: str, typed: str, why: str
) -> None:
    denied(browser.post(f"/deployments/new?plan={joined.plan.pk}", {field: typed}), 422, why)
    assert not Deployment.unscoped.exists()


@pytest.mark.parametrize(
    ("hardware", "model", "options", "why"),
    [
        (
            {**HARDWARE, "gpus": [GPU, GPU]}, {}, {"tensor_parallel_by_node": {"FIRST": 3}},
            "3 ranks need as many GPUs, node FIRST has 2 GPUs; choose at most 2",
        ),
        (
            HARDWARE, {}, {"tensor_parallel": 3},
            "3 ranks are more than node FIRST can run, which has 2 processors and no GPU; choose "
            "at most 2 ranks",
        ),
        (
            HARDWARE, {"num_heads": 9, "num_kv_heads": 3}, {"tensor_parallel": 2},
            "9 query heads and 3 KV heads cannot be dealt to 2 ranks; choose a degree",
        ),
        (
            HARDWARE, {}, {"tensor_parallel_by_node": {"nobody": 2}},
            "node nobody holds no layers and runs no instance that this applies to; leave it out",
        ),
        (HARDWARE, {}, {"tensor_parallel": 0}, "tensor_parallel"),
        (HARDWARE, {}, {"tensor_parallel_by_node": {"a": 65}}, "tensor_parallel"),
        (announced(vllm=None), {}, {"engine": "vllm"}, "Node FIRST cannot run"),
        (announced(vllm=None), {}, {"engine": "vllm"}, "helix-agent install-engine vllm"),
        (
            announced(engine=Engine.HELIX), {"dtype": "awq-4bit"}, {"engine": "vllm"},
            "own engine does not read",
        ),
        (HARDWARE, {}, {"engine": "helix"}, "too old to take"),
        (announced(), {}, {"engine_by_node": {"nowhere": "vllm"}}, "holds no layers"),
        (
            HARDWARE, {}, {"max_context_tokens": 2049},
            "longer than the 2048 that model tiny-llama allows",
        ),
    ],
)  # fmt: skip
def test_what_a_node_or_the_model_does_not_allow_is_an_obstacle(
    joined: FakeCluster,
    api: APIClient,
    hardware: dict[str, Any],
    model: dict[str, Any],
    options: dict[str, Any],
    why: str,
) -> None:
    first = min(joined.used_agents)
    Node.unscoped.update(hardware=hardware)
    set_up(joined, **model)
    body = {"plan": joined.plan.pk, **options}
    if "FIRST" in options.get("tensor_parallel_by_node", ()):
        body["tensor_parallel_by_node"] = {first: 3}
    answer = api.post("/api/v1/deployments/", body)
    assert answer.status_code in (400, 409), answer.content
    assert why.replace("FIRST", first) in answer.content.decode()
    assert not Deployment.unscoped.exists()


def test_nodes_that_cannot_run_a_model_are_left_out(browser: Client, joined: FakeCluster) -> None:
    set_up(joined, dtype="awq-4bit")
    first, second = list(joined.agents)[:2]
    Node.unscoped.filter(name=first).update(hardware=announced(vllm=None))
    problem = build_problem(joined.cluster, joined.model)
    assert {node.name for node in problem.cluster.nodes} == joined.agents.keys() - {first}
    asked = f"cluster={joined.cluster.pk}&model={joined.model.pk}"
    page = browser.get(f"/plans/new/fit?{asked}").content.decode()
    assert "1 node is left out" in page
    assert f"<strong>{first}</strong>: the weights are quantised (awq-4bit)" in page
    page = browser.get(f"/models/{joined.model.pk}/").content.decode()
    assert "cannot run it" in page
    assert "needs vLLM on this node; run `helix-agent install-engine vllm`" in page
    for name, shown in ((first, "vLLM is not installed"), (second, "quantised: awq-4bit")):
        node = Node.unscoped.get(name=name)
        assert (
            shown in browser.get(f"/clusters/{node.cluster_id}/nodes/{node.pk}/").content.decode()
        )


def test_a_model_that_no_node_can_run_is_not_planned(joined: FakeCluster, api: APIClient) -> None:
    set_up(joined, why_not_split="its layers keep a state")
    with pytest.raises(InvalidProblem, match=r"no node .* its layers keep a state"):
        build_problem(joined.cluster, joined.model)
    whole = build_problem(joined.cluster, joined.model, is_for_stages=False)
    assert len(whole.cluster.nodes) == len(joined.agents)
    run = {"cluster": joined.cluster.pk, "model": joined.model.pk}
    answer = api.post("/api/v1/plan-runs/", run)
    assert answer.status_code in (400, 409, 422)
    assert "keep a state" in answer.content.decode()


def test_a_stage_without_a_fast_kernel_is_marked_slow(browser: Client, joined: FakeCluster) -> None:
    joined.deploy()
    agent = next(iter(joined.used_agents.values()))
    page = f"/clusters/{joined.cluster.pk}/nodes/{agent.row.pk}/"
    for engine, is_slow in (("vLLM on cpu (CPU_ATTN)", False), ("vLLM on cpu (Torch, slow)", True)):
        stage = STATS.model_copy(update={"engine": engine}).model_dump(mode="json")
        agent.beat(Phase.READY, generation=1, stage=stage)
        shown = browser.get(page).content.decode()
        assert ('<span class="badge warn">slow</span>' in shown) == is_slow


def test_reasons_are_told_in_the_readers_language(joined: FakeCluster) -> None:
    set_up(joined, dtype="fp8-blocks")
    choice = choice_of(announced(), joined.model)
    assert choice is not None
    english = why_text(choice)
    with translation.override("zh-hans"):
        chinese = why_text(choice)
    assert "fp8-blocks" in english
    assert "fp8-blocks" in chinese
    assert not set(english.split()) & set(chinese.split()) - {"fp8-blocks", "vLLM"}
