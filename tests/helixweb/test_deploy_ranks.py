"""How many ranks share a node's layers: asked of the web, checked there, told to the agents."""

from typing import Any

import pytest
from django.test import Client
from process_doubles import HARDWARE, FakeCluster
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Node
from runtime.protocol.control import Gpu
from tests.helixweb.markup import tight

pytestmark = pytest.mark.usefixtures("time_stands_still")

GPU = Gpu(name="L4", memory_bytes=24_000_000).model_dump(mode="json")


def ranks_told(joined: FakeCluster) -> dict[str, int]:
    assignments = {name: agent.desired().assignment for name, agent in joined.used_agents.items()}
    return {name: told.tensor_parallel for name, told in assignments.items() if told is not None}


def refusals(joined: FakeCluster, api: APIClient, **options: Any) -> str:
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk, **options})
    assert answer.status_code in (400, 409), answer.content
    assert not Deployment.objects.exists()
    return answer.content.decode()


def test_a_node_is_one_process_unless_ranks_are_asked_for(
    joined: FakeCluster, api: APIClient
) -> None:
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    assert answer.json()["tensor_parallel"] == 1
    assert set(ranks_told(joined).values()) == {1}


def test_every_node_gets_its_own_number_of_ranks_or_that_of_all(
    joined: FakeCluster, api: APIClient
) -> None:
    first, *others = joined.used_agents
    answer = api.post(
        "/api/v1/deployments/",
        {
            "plan": joined.plan.pk,
            "tensor_parallel": 2,
            "tensor_parallel_by_node": {first: 1},
        },
    )
    assert answer.status_code == 202, answer.content
    assert ranks_told(joined) == {first: 1} | dict.fromkeys(others, 2)
    shown = {row["node_name"]: row["tensor_parallel"] for row in answer.json()["assignments"]}
    assert shown == ranks_told(joined)
    assert answer.json()["tensor_parallel_by_node"] == {first: 1}


def test_the_form_takes_ranks_and_the_deployment_shows_them(
    browser: Client, joined: FakeCluster
) -> None:
    first = next(iter(joined.used_agents))
    answer = browser.post(
        f"/deployments/new?plan={joined.plan.pk}", {"tensor_parallel_by_node": f" {first}=2, "}
    )
    assert answer.status_code == 302, answer.content
    assert ranks_told(joined)[first] == 2
    page = tight(browser.get(answer["Location"]).content.decode())
    assert page.count("2 ranks</span>") == 1
    assert f"none; {first}: 2 ranks</dd>" in page


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("gpu-a", "write NODE=RANKS"),
        ("gpu-a=two", "write NODE=RANKS"),
        ("=2", "write NODE=RANKS"),
        ("gpu-a=0", "ranks are from 1 to 64"),
        ("gpu-a=65", "ranks are from 1 to 64"),
        (f"gpu-a={'9' * 5000}", "ranks are from 1 to 64"),
        ("gpu-a=2 gpu-a=4", "is there twice"),
    ],
)
def test_what_is_no_number_of_ranks_is_refused_beside_its_field(
    browser: Client, joined: FakeCluster, typed: str, why: str
) -> None:
    answer = browser.post(
        f"/deployments/new?plan={joined.plan.pk}", {"tensor_parallel_by_node": typed}
    )
    assert answer.status_code == 422
    assert why in answer.content.decode()
    assert not Deployment.objects.exists()


def test_a_node_needs_a_gpu_for_each_rank(joined: FakeCluster, api: APIClient) -> None:
    first = next(iter(joined.used_agents))
    Node.objects.filter(name=first).update(hardware={**HARDWARE, "gpus": [GPU, GPU]})
    asked = {"tensor_parallel_by_node": {first: 3}}
    said = refusals(joined, api, **asked)
    assert f"3 ranks need as many GPUs, node {first} has 2 GPUs; choose at most 2" in said


def test_a_node_without_a_gpu_needs_a_processor_for_each_rank(
    joined: FakeCluster, api: APIClient
) -> None:
    said = refusals(joined, api, tensor_parallel=3)
    assert "3 ranks are more than node" in said
    assert "2 processors and no GPU; choose at most 2 ranks" in said


def test_ranks_that_the_heads_of_the_model_do_not_allow_are_refused(
    joined: FakeCluster, api: APIClient
) -> None:
    joined.model.num_heads, joined.model.num_kv_heads = 9, 3
    joined.model.save()
    said = refusals(joined, api, tensor_parallel=2)
    assert "9 query heads and 3 KV heads cannot be dealt to 2 ranks; choose a degree" in said


def test_ranks_of_a_node_without_layers_are_refused(joined: FakeCluster, api: APIClient) -> None:
    said = refusals(joined, api, tensor_parallel_by_node={"nobody": 2})
    assert "node nobody, which holds no layers in this plan; leave it out" in said


@pytest.mark.parametrize(
    "options", [{"tensor_parallel": 0}, {"tensor_parallel_by_node": {"a": 65}}]
)
def test_numbers_beyond_the_limits_are_refused(
    joined: FakeCluster, api: APIClient, options: dict[str, Any]
) -> None:
    assert "tensor_parallel" in refusals(joined, api, **options)
