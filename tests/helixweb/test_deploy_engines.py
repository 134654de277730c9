"""What computes the layers of a model: asked for by people, checked there, told to the agents."""

from typing import Any

import pytest
from django.test import Client
from django.utils import translation
from process_doubles import HARDWARE, FakeCluster
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment
from helixweb.inventory.engines import choice_of, why_text
from helixweb.inventory.models import Change, Node
from helixweb.inventory.services.problems import build_problem
from planner.domain.errors import InvalidProblem
from runtime.checkpoints.engine_fit import offers_of
from runtime.protocol.engines import Engine, EngineOffer, EngineSettings
from runtime.protocol.phases import Phase
from tests.helixweb.markup import tight

pytestmark = pytest.mark.usefixtures("time_stands_still")

ON_CPU = EngineOffer(engine=Engine.VLLM, platform="cpu", quantizations=("awq-4bit",))


def announced(*, vllm: EngineOffer | None = ON_CPU, engine: Engine = Engine.AUTO) -> dict[str, Any]:
    """Hardware of a node without GPUs. `vllm` None: it is not installed."""
    offers = offers_of(EngineSettings(python="" if vllm is None else "/python", vllm=vllm))
    told = [offer.model_dump(mode="json") for offer in offers]
    return {**HARDWARE, "engines": told, "engine": engine.value}


@pytest.fixture
def joined(joined: FakeCluster) -> FakeCluster:
    Node.objects.update(hardware=announced())
    return joined


def set_up(joined: FakeCluster, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(joined.model, name, value)
    joined.model.save()


def told(joined: FakeCluster) -> dict[str, Engine]:
    wanted = {name: agent.desired().assignment for name, agent in joined.used_agents.items()}
    return {name: each.engine for name, each in wanted.items() if each is not None}


def refusal(joined: FakeCluster, api: APIClient, **options: Any) -> str:
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk, **options})
    assert answer.status_code in (400, 409), answer.content
    assert not Deployment.objects.exists()
    return str(answer.content.decode())


def test_agents_are_not_told_of_engines_that_nobody_asked_for(
    joined: FakeCluster, api: APIClient
) -> None:
    """Those of an earlier release refuse the field."""
    api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    agent = next(iter(joined.used_agents.values()))
    assignment = agent.http.get("/api/v1/agent/desired").json()["assignment"]
    assert assignment["tensor_parallel"] == 1
    assert "engine" not in assignment


def test_the_nodes_word_counts_before_the_deployments_and_that_before_the_models(
    joined: FakeCluster, api: APIClient
) -> None:
    set_up(joined, engine="helix")
    api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    first, *others = joined.used_agents
    assert told(joined) == dict.fromkeys([first, *others], Engine.HELIX)
    asked = {"engine": "vllm", "engine_by_node": {first: "auto"}}
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk, **asked})
    assert answer.status_code == 202, answer.content
    assert told(joined) == {first: Engine.AUTO} | dict.fromkeys(others, Engine.VLLM)
    assert {key: answer.json()[key] for key in asked} == asked
    newest = Change.objects.filter(kind="deployment").order_by("-pk").first()
    assert newest is not None
    assert newest.after is not None
    assert newest.after["engine"] == "vllm"


def test_a_deployment_keeps_its_engine_when_the_models_changes(
    joined: FakeCluster, api: APIClient
) -> None:
    set_up(joined, engine="helix")
    api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    set_up(joined, engine="vllm")
    agent = next(iter(joined.used_agents.values()))
    agent.move("tcp://127.0.0.1:7999")
    assert set(told(joined).values()) == {Engine.HELIX}


def test_the_form_takes_engines_and_the_deployment_shows_them(
    browser: Client, joined: FakeCluster
) -> None:
    first = next(iter(joined.used_agents))
    address = f"/deployments/new?plan={joined.plan.pk}"
    answer = browser.post(address, {"engine": "helix", "engine_by_node": f" {first}=vllm "})
    assert answer.status_code == 302, answer.content
    assert told(joined)[first] is Engine.VLLM
    page = tight(browser.get(answer["Location"]).content.decode())
    assert f"helix; {first}: vllm</dd>" in page


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("gpu-a", "is no engine; write auto, vllm or helix"),
        ("gpu-a=transformers", "is no engine"),
        ("=vllm", "does not say which node"),
        ("gpu-a=vllm gpu-a=helix", "is there twice"),
    ],
)
def test_what_is_no_engine_is_refused_beside_its_field(
    browser: Client, joined: FakeCluster, typed: str, why: str
) -> None:
    answer = browser.post(f"/deployments/new?plan={joined.plan.pk}", {"engine_by_node": typed})
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert not Deployment.objects.exists()


def test_a_node_without_the_engine_is_an_obstacle_with_the_remedy(
    joined: FakeCluster, api: APIClient
) -> None:
    first = next(iter(joined.used_agents))
    Node.objects.filter(name=first).update(hardware=announced(vllm=None))
    said = refusal(joined, api, engine="vllm")
    assert f"Node {first} cannot run" in said
    assert "helix-agent install-engine vllm" in said


def test_the_agents_own_setting_is_what_counts(joined: FakeCluster, api: APIClient) -> None:
    set_up(joined, dtype="awq-4bit")
    Node.objects.update(hardware=announced(engine=Engine.HELIX))
    assert "own engine does not read" in refusal(joined, api, engine="vllm")


def test_an_agent_of_an_earlier_release_is_not_asked_for_an_engine(
    joined: FakeCluster, api: APIClient
) -> None:
    Node.objects.update(hardware=HARDWARE)
    assert "too old to take" in refusal(joined, api, engine="helix")
    assert api.post("/api/v1/deployments/", {"plan": joined.plan.pk}).status_code == 202


def test_an_engine_of_a_node_without_layers_is_refused(joined: FakeCluster, api: APIClient) -> None:
    assert "holds no layers" in refusal(joined, api, engine_by_node={"nowhere": "vllm"})


def test_nodes_that_cannot_run_the_model_are_left_out_of_plans(
    browser: Client, joined: FakeCluster
) -> None:
    set_up(joined, dtype="awq-4bit")
    first = next(iter(joined.agents))
    Node.objects.filter(name=first).update(hardware=announced(vllm=None))
    problem = build_problem(joined.cluster, joined.model)
    assert {node.name for node in problem.cluster.nodes} == joined.agents.keys() - {first}
    asked = f"cluster={joined.cluster.pk}&model={joined.model.pk}"
    page = browser.get(f"/plans/new/fit?{asked}").content.decode()
    assert "1 node is left out" in page
    assert f"<strong>{first}</strong>: the weights are quantised (awq-4bit)" in page


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


def test_pages_say_which_nodes_can_run_a_model_and_why_not(
    browser: Client, joined: FakeCluster
) -> None:
    set_up(joined, dtype="awq-4bit")
    first, second = list(joined.agents)[:2]
    Node.objects.filter(name=first).update(hardware=announced(vllm=None))
    page = browser.get(f"/models/{joined.model.pk}/").content.decode()
    assert "cannot run it" in page
    assert "needs vLLM on this node; run `helix-agent install-engine vllm`" in page
    ids = dict(Node.objects.values_list("name", "pk"))
    lacking = browser.get(f"/clusters/{joined.cluster.pk}/nodes/{ids[first]}/").content.decode()
    assert "vLLM is not installed" in lacking
    other = browser.get(f"/clusters/{joined.cluster.pk}/nodes/{ids[second]}/").content.decode()
    assert "quantised: awq-4bit" in other


def test_a_stage_without_a_fast_kernel_is_marked_as_slow(
    browser: Client, joined: FakeCluster, api: APIClient
) -> None:
    api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    agent = next(iter(joined.used_agents.values()))
    stats = {
        "kv_pages_total": 1, "kv_pages_used": 0, "sequences": 0, "steps_total": 0,
        "prompt_tokens_total": 0, "decode_tokens_total": 0, "busy_s_total": 0, "uptime_s": 1,
        "weights_bytes": 1, "kv_bytes": 1,
    }  # fmt: skip
    page = f"/clusters/{joined.cluster.pk}/nodes/{agent.row.pk}/"
    for engine, is_slow in (("vLLM on cpu (CPU_ATTN)", False), ("vLLM on cpu (Torch, slow)", True)):
        agent.beat(Phase.READY, generation=1, stage={**stats, "engine": engine})
        assert ('<span class="badge warn">slow</span>' in browser.get(page).content.decode()) == (
            is_slow
        )


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
