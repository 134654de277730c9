"""Whole-model instances on the site: planned, deployed, told of, routed around, taken back."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from process_doubles import FakeCluster
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment, Status
from helixweb.inventory import services as inventory
from helixweb.inventory.models import Cluster, LanguageModel, Node, Profile
from helixweb.planning import attempts
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.searches import search_for
from planner.compute_plan import PlanOptions
from planner.domain.instance import PlanMethod
from planner.placers.base import NeverCancelled
from planner.plan_instances import plan_by_method
from planner.serialization import plan_to_dict, problem_from_dict, problem_to_dict
from runtime.protocol.control import Phase
from runtime.protocol.instance_orders import PIPELINES, InstanceTraffic, ObservedInstance

pytestmark = pytest.mark.usefixtures("time_stands_still")


class Instances(FakeCluster):
    """A cluster in which `whole` nodes hold all layers, and a plan by that method."""

    def __init__(self, cluster: Cluster, user: Any, *, whole: int, method: PlanMethod) -> None:
        super().__init__(cluster, user)
        make_whole(cluster, self.model, list(self.agents)[:whole])
        self.plan = plan_by(cluster, self.model, method)

    def deploy(self, api: APIClient, **options: Any) -> Deployment:
        answer = api.post("/api/v1/deployments/", {"plan": self.plan.pk, **options}, format="json")
        assert answer.status_code == 202, answer.content
        return Deployment.objects.get(pk=answer.json()["id"])


def make_whole(cluster: Cluster, model: LanguageModel, names: list[str]) -> None:
    layers = model.num_layers
    Profile.objects.create(
        cluster=cluster,
        model=model,
        name="whole",
        gpu="big",
        vram_bytes=1e9,
        max_layers=layers,
        tokens_per_s=[1000.0 / held for held in range(1, layers + 1)],
        kv_capacity_token_layers=[90_000.0 - 500 * held for held in range(1, layers + 1)],
        layer_times={
            "prompt": [[1000.0, 0.1]],
            "decode": [[1.0, 0.001], [100.0, 0.01]],
        },
        # an engine that is much faster than a stage of all layers
        instance_times={"1": {"prefill": [1e-6, 0, 0, 1e-3], "decode": [0, 1e-5, 0, 1e-3]}},
    )
    Node.objects.filter(cluster=cluster, name__in=names).update(profile_name="whole")


def plan_by(cluster: Cluster, model: LanguageModel, method: PlanMethod) -> Plan:
    document = problem_to_dict(inventory.build_problem(cluster, model))
    plan = plan_by_method(
        problem_from_dict(document),
        options=PlanOptions(method=method, time_limit_s=1.0, solver="highs"),
        progress=lambda incumbent: None,
        cancel=NeverCancelled(),
    )
    return Plan.objects.create(
        cluster=cluster,
        model=model,
        document=plan_to_dict(plan),
        problem=document,
        flow_tokens_per_s=plan.flow.value_tokens_per_s,
        upper_bound_tokens_per_s=plan.upper_bound_tokens_per_s,
        hops=plan.hops,
    )


@pytest.fixture
def two(cluster: Cluster, user: Any) -> Instances:
    return Instances(cluster, user, whole=2, method="instances")


def told(name: str, condition: str = "ready", **more: Any) -> dict[str, Any]:
    told = ObservedInstance(name=name, condition=condition, port=20_000 + len(name), **more)
    return told.model_dump(mode="json")


def beat_all(there: Instances, deployment: Deployment) -> None:
    for name in there.plan.document["placement"]:
        there.agents[name].beat(
            Phase.READY, generation=deployment.generation, instances=[told(name)]
        )


def test_nodes_are_told_their_instances_and_coordinators_where_these_answer(
    api: APIClient, two: Instances
) -> None:
    deployment = two.deploy(api, theta=3.0)
    names = sorted(two.plan.document["placement"])
    agent = two.agents[names[0]]
    desired = agent.desired()
    assert desired.assignment is None
    (order,) = desired.instances
    assert (order.name, order.backend, order.checkpoint) == (
        names[0],
        "helix",
        "/models/tiny-llama",
    )
    before = two.coordinator.desired().plan
    assert before is not None
    assert (before.instances, before.instances_total, before.theta) == ((), 2, 3.0)
    assert before.placement.layers == {}
    assert before.peers == ()
    beat_all(two, deployment)
    after = two.coordinator.desired().plan
    assert after is not None
    assert [one.name for one in after.instances] == names
    one = after.instances[0]
    assert one.url == f"http://127.0.0.1:{20_000 + len(names[0])}"
    assert one.api_key == order.api_key
    assert one.decode is not None
    deployment.refresh_from_db()
    assert deployment.status == Status.READY


def test_the_key_of_an_instance_is_no_column_and_the_same_in_the_next_generation(
    api: APIClient, two: Instances
) -> None:
    first = two.deploy(api)
    name = next(iter(two.plan.document["placement"]))
    (before,) = two.agents[name].desired().instances
    row = first.assignments.get(node_name=name)
    assert before.api_key not in str(row.instances)
    two.deploy(api)
    (after,) = two.agents[name].desired().instances
    assert after == before


def test_one_that_fails_degrades_the_deployment_and_its_page_says_why(
    api: APIClient, browser: Client, two: Instances
) -> None:
    deployment = two.deploy(api)
    beat_all(two, deployment)
    name = next(iter(two.plan.document["placement"]))
    two.agents[name].beat(
        Phase.FAILED,
        generation=deployment.generation,
        message=f"instance {name}: exited with status 1",
        instances=[told(name, "waiting", message="exited with status 1", log_tail="CUDA oom")],
    )
    deployment.refresh_from_db()
    assert deployment.status == Status.DEGRADED
    page = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    assert "failed; starts again" in page
    assert "exited with status 1" in page
    assert "CUDA oom" in page
    node = Node.objects.get(cluster=two.cluster, name=name)
    page = browser.get(f"/clusters/{two.cluster.pk}/nodes/{node.pk}/").content.decode()
    assert "CUDA oom" in page


def test_a_deployment_whose_instances_all_fail_has_failed(api: APIClient, two: Instances) -> None:
    deployment = two.deploy(api)
    for name in two.plan.document["placement"]:
        two.agents[name].beat(
            Phase.FAILED, generation=deployment.generation, message="no", instances=[told(name)]
        )
    deployment.refresh_from_db()
    assert deployment.status == Status.FAILED


def test_pages_show_what_coordinators_send_where(
    api: APIClient, browser: Client, two: Instances
) -> None:
    deployment = two.deploy(api)
    beat_all(two, deployment)
    first, second = sorted(two.plan.document["placement"])
    traffic = {
        first: InstanceTraffic(
            node=first, condition="ready", open=True, requests=3, waiting=7, kv_usage=0.25,
            answered_total=30, output_tokens_per_s=41.5,
        ),
        second: InstanceTraffic(
            node=second, condition="ready", open=False, message="it answered 500",
            answered_total=10, failed_total=4,
        ),
    }  # fmt: skip
    two.coordinator.report(generation=deployment.generation, instances=traffic)
    for address in (f"/deployments/{deployment.pk}/", f"/monitor/?cluster={two.cluster.pk}"):
        page = browser.get(address).content.decode()
        assert "75.0 %" in page
        assert "41.5" in page
        assert "left alone" in page
        assert "it answered 500" in page
    (busy, failing) = api.get(f"/api/v1/deployments/{deployment.pk}/instances/").json()["instances"]
    assert (busy["requests"], busy["waiting"], busy["share"]) == (3, 7, 0.75)
    assert (failing["failures"], failing["left_alone"]) == (4, True)


def test_a_url_in_place_of_a_node_is_no_business_of_its_agent(
    api: APIClient, two: Instances
) -> None:
    first, second = sorted(two.plan.document["placement"])
    deployment = two.deploy(api, backend_by_node={first: "http://192.0.2.7:8000"})
    assert two.agents[first].desired().instances == ()
    plan = two.coordinator.desired().plan
    assert plan is not None
    (known,) = plan.instances
    assert (known.name, known.url, known.api_key) == (first, "http://192.0.2.7:8000", "")
    two.agents[second].beat(Phase.READY, generation=deployment.generation, instances=[told(second)])
    deployment.refresh_from_db()
    assert deployment.status == Status.READY


def test_transformers_is_asked_by_the_name_of_its_checkpoint(
    api: APIClient, two: Instances
) -> None:
    first = min(two.plan.document["placement"])
    deployment = two.deploy(api, backend_by_node={first: "transformers"})
    beat_all(two, deployment)
    plan = two.coordinator.desired().plan
    assert plan is not None
    one = plan.instances[0]
    assert (one.model, one.has_metrics, one.tells_usage) == ("/models/tiny-llama", False, False)


def refused(answer: Any, *words: str) -> None:
    assert answer.status_code in (400, 409), answer.content
    for word in words:
        assert word in answer.content.decode()


@pytest.mark.parametrize("backend", ["sglang", "http://", "https://host:0", "http://h/path", ""])
def test_a_backend_that_is_none_is_refused_with_what_would_be(
    api: APIClient, two: Instances, backend: str
) -> None:
    first = min(two.plan.document["placement"])
    body = {"plan": two.plan.pk, "backend_by_node": {first: backend}}
    answer = api.post("/api/v1/deployments/", body, format="json")
    assert answer.status_code == 400
    if backend:
        assert "vllm" in answer.content.decode()


def test_a_backend_of_a_node_without_instances_is_refused(api: APIClient, two: Instances) -> None:
    body = {"plan": two.plan.pk, "backend_by_node": {"nobody": "vllm"}}
    refused(api.post("/api/v1/deployments/", body, format="json"), "nobody", "no instance")


def test_the_form_takes_backends_as_words(browser: Client, two: Instances) -> None:
    first = min(two.plan.document["placement"])
    address = f"/deployments/new?plan={two.plan.pk}"
    answer = browser.post(address, {"backend_by_node": f"{first}=sglang"})
    assert answer.status_code == 422
    assert "is no backend" in answer.content.decode()
    answer = browser.post(address, {"backend_by_node": f"{first}=vllm", "theta": "1.5"})
    assert answer.status_code == 302
    deployment = Deployment.objects.latest("pk")
    assert (deployment.backend_by_node, deployment.theta) == ({first: "vllm"}, 1.5)
    page = browser.get(f"{address}&again={deployment.pk}").content.decode()
    assert f"{first}=vllm" in page


def test_a_mixed_plan_has_pipelines_beside_its_instances(
    api: APIClient, cluster: Cluster, user: Any
) -> None:
    there = Instances(cluster, user, whole=1, method="mixed")
    assert there.plan.document["method_choice"]["chosen"] == "instances and pipelines"
    there.deploy(api)
    (node,) = (one["node"] for one in there.plan.document["instances"])
    plan = there.coordinator.desired().plan
    assert plan is not None
    assert node not in plan.placement.layers
    assert plan.placement.layers
    assert node not in {peer.name for peer in plan.peers}
    assert node not in plan.routing_weights["source"]
    assert plan.pipelines_tokens_per_s is not None
    other = next(iter(plan.placement.layers))
    assert there.agents[other].desired().assignment is not None


def searched() -> Plan:
    """The newest run's plan, by its own search."""
    run = PlanRun.objects.latest("pk")
    attempt = attempts.claim(run_id=run.pk, now=timezone.now())
    assert attempt is not None
    found = search_for(run, progress=lambda _: None, cancel=NeverCancelled())
    return attempts.finish_with_plan(run=run, attempt=attempt, plan=found.plan, now=timezone.now())


def test_a_run_by_instances_is_asked_for_by_form_and_by_rest(
    api: APIClient, browser: Client, two: Instances
) -> None:
    model = two.model
    body = {
        "cluster": two.cluster.pk,
        "model": model.pk,
        "options": {"method": "instances", "backend": "vllm", "time_limit_s": 1},
    }
    answer = api.post("/api/v1/plan-runs/", body, format="json")
    assert answer.status_code == 202, answer.content
    shown = answer.json()["options"]
    assert (shown["method"], shown["backend"], shown["tensor_parallel"]) == (
        "instances",
        "vllm",
        None,
    )
    plan = searched()
    assert {one["backend"] for one in plan.document["instances"]} == {"vllm"}
    page = browser.get(reverse("plan-run", args=[plan.run_id])).content.decode()
    assert "Instances of this plan" in page
    assert "Algorithm 1" in page


def test_instances_with_another_objective_are_refused(api: APIClient, two: Instances) -> None:
    body = {
        "cluster": two.cluster.pk,
        "model": two.model.pk,
        "options": {"method": "mixed", "objective": "flow"},
    }
    answer = api.post("/api/v1/plan-runs/", body, format="json")
    refused(answer, "decode")


def test_pipelines_beside_instances_have_a_row_of_their_own(
    api: APIClient, browser: Client, two: Instances
) -> None:
    deployment = two.deploy(api)
    pipelines = InstanceTraffic(node="", condition="ready", open=True, answered_total=5)
    two.coordinator.report(generation=deployment.generation, instances={PIPELINES: pipelines})
    page = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    assert "the pipelines" in page
    assert "100.0 %" in page
