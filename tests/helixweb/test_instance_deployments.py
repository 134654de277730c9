"""Whole-model instances on the site: planned, deployed, told of, routed around, taken back."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.deployment import settling
from helixweb.deployment.models import Deployment, Drain, Status
from helixweb.inventory.models import Cluster, Node
from runtime.protocol.instance_orders import PIPELINES, InstanceTraffic
from runtime.protocol.phases import Phase
from tests.helixweb.instance_doubles import Instances, plan_by, refused, told
from tests.helixweb.looking import answered, contains, denied, fresh, shows
from tests.helixweb.process_doubles import served

pytestmark = pytest.mark.usefixtures("time_stands_still")


def test_nodes_are_told_their_instances_and_coordinators_where_these_answer(two: Instances) -> None:
    deployment = two.deploy(theta=3.0)
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
    before = two.coordinator.plan
    assert (before.instances, before.instances_total, before.theta) == ((), 2, 3.0)
    assert before.placement.layers == {}
    assert before.peers == ()
    two.ready(generation=deployment.generation)
    after = two.coordinator.plan
    assert [one.name for one in after.instances] == names
    one = after.instances[0]
    assert one.url == f"http://127.0.0.1:{20_000 + len(names[0])}"
    assert one.api_key == order.api_key
    assert one.decode is not None
    assert fresh(deployment).status == Status.READY


def test_vllm_gets_its_models_flags_at_the_next_deployment(api: APIClient, two: Instances) -> None:
    name = sorted(two.plan.document["placement"])[0]
    two.deploy(backend_by_node={name: "vllm"})
    assert two.agents[name].desired().instances[0].vllm_flags == ()
    flags = "--enable-auto-tool-choice --tool-call-parser hermes"
    answer = api.patch(f"/api/v1/models/{two.model.pk}/", {"vllm_flags": flags}, format="json")
    assert answer.status_code == 200, answer.content
    assert two.agents[name].desired().instances[0].vllm_flags == ()
    two.deploy(backend_by_node={name: "vllm"})
    assert two.agents[name].desired().instances[0].vllm_flags == tuple(flags.split())


def test_flags_that_load_code_are_refused(browser: Client, api: APIClient, two: Instances) -> None:
    bad, model = "--trust-remote-code", two.model
    refused(
        api.patch(f"/api/v1/models/{model.pk}/", {"vllm_flags": bad}, format="json"),
        "vllm_flags",
        bad,
    )
    address = reverse("model-edit", args=[model.pk])
    form = browser.get(address).context["form"]
    values = {key: value for key, value in form.initial.items() if value is not None}
    page = browser.post(address, {**values, "vllm_flags": bad})
    assert bad in page.context["form"].errors["vllm_flags"][0]
    exported = api.get("/api/v1/export/").json()
    for row in exported["models"]:
        row["vllm_flags"] = bad
    refused(api.post("/api/v1/import/", exported, format="json"), "vllm_flags", bad)


@pytest.mark.parametrize(
    ("url", "is_warned_of"),
    [
        ("http://192.0.2.7:8000", True),
        ("http://gpu.example:8000", True),
        ("https://gpu.example", False),
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000", False),
    ],
)
def test_the_page_warns_of_a_server_to_which_requests_go_unencrypted(
    api: APIClient, browser: Client, two: Instances, url: str, is_warned_of: bool
) -> None:
    deployment = two.deploy(backend_by_node={min(two.plan.document["placement"]): url})
    page = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    assert ("not encrypted" in page) is is_warned_of
    (row, _) = api.get(f"/api/v1/deployments/{deployment.pk}/instances/").json()["instances"]
    assert row["unencrypted"] is is_warned_of


def test_coordinators_are_told_the_certificate_of_an_instance_that_has_one(two: Instances) -> None:
    deployment = two.deploy()
    first, second = sorted(two.plan.document["placement"])
    lines = "MIIB\n" * 1000  # a chain is long
    certificate = f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n"
    two.agents[first].beat(
        Phase.READY, generation=1, instances=[told(first, certificate=certificate)]
    )
    two.agents[second].beat(Phase.READY, generation=1, instances=[told(second)])
    plan = two.coordinator.plan
    doors = {one.name: (one.url.partition(":")[0], one.certificate) for one in plan.instances}
    assert doors == {first: ("https", certificate), second: ("http", "")}
    assert deployment.generation == 1


def test_the_key_of_an_instance_is_no_column_and_stays_the_same(two: Instances) -> None:
    first = two.deploy()
    name = next(iter(two.plan.document["placement"]))
    (before,) = two.agents[name].desired().instances
    row = first.assignments.get(node_name=name)
    assert before.api_key not in str(row.instances)
    two.deploy()
    (after,) = two.agents[name].desired().instances
    assert after == before


def test_a_failed_instance_degrades_its_deployment(browser: Client, two: Instances) -> None:
    deployment = served(two)
    name = next(iter(two.plan.document["placement"]))
    two.agents[name].beat(
        Phase.FAILED,
        generation=deployment.generation,
        message=f"instance {name}: exited with status 1",
        instances=[told(name, "waiting", message="exited with status 1", log_tail="CUDA oom")],
    )
    assert fresh(deployment).status == Status.DEGRADED
    page = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    contains(page, "failed; starts again", "exited with status 1", "CUDA oom")
    node = Node.unscoped.get(cluster=two.cluster, name=name)
    shows(browser.get(f"/clusters/{two.cluster.pk}/nodes/{node.pk}/"), "CUDA oom")


def test_a_server_that_answers_keeps_a_deployment_from_having_failed(two: Instances) -> None:
    failed, elsewhere = sorted(two.plan.document["placement"])
    deployment = two.deploy(backend_by_node={elsewhere: "http://192.0.2.7:8000"})
    for is_open, status in ((False, Status.FAILED), (True, Status.DEGRADED)):
        traffic = InstanceTraffic(node=elsewhere, condition="ready", open=is_open)
        two.coordinator.report(generation=1, instances={elsewhere: traffic})
        two.agents[failed].beat(
            Phase.FAILED, generation=1, message="no", instances=[told(failed, "waiting")]
        )
        assert fresh(deployment).status == status


def test_external_servers_are_ready_once_one_answers(browser: Client, two: Instances) -> None:
    names = sorted(two.plan.document["placement"])
    deployment = two.deploy(backend_by_node={name: f"http://{name}:8000" for name in names})

    def told_that(message: str, *, is_open: bool, **more: Any) -> Status:
        condition = "ready" if is_open else "starting"
        traffic = {
            name: InstanceTraffic(node=name, condition=condition, open=is_open, message=message)
            for name in names[:1]
        }
        two.coordinator.report(generation=1, instances=traffic, **more)
        settling.settle(deployment.pk, now=timezone.now())
        deployment.refresh_from_db()
        return Status(deployment.status)

    settling.settle(deployment.pk, now=timezone.now())
    assert fresh(deployment).status == Status.DEPLOYING
    assert told_that("", is_open=False) is Status.DEPLOYING
    assert told_that("it does not answer: refused", is_open=False) is Status.FAILED
    assert deployment.message == f"{names[0]}: it does not answer: refused"
    shows(browser.get(f"/deployments/{deployment.pk}/"), "it does not answer: refused")
    assert told_that("no vllm:x among its metrics", is_open=True) is Status.READY
    assert told_that("old news", is_open=True, coming_generation=1) is Status.DEPLOYING


@pytest.mark.parametrize("stages", [Phase.READY, Phase.LOADING])
def test_pipelines_beside_an_instance_that_failed_answer_where_all_their_stages_are_there(
    cluster: Cluster, user: Any, stages: Phase
) -> None:
    there = Instances(cluster, user, whole=1, method="mixed")
    deployment = there.deploy()
    (instance,) = (one["node"] for one in there.plan.document["instances"])
    for name in set(there.plan.document["placement"]) - {instance}:
        there.agents[name].beat(stages, generation=1)
    there.agents[instance].beat(
        Phase.FAILED, generation=1, message="no", instances=[told(instance, "waiting")]
    )
    deployment.refresh_from_db()
    serves = stages is Phase.READY
    assert deployment.status == (Status.DEGRADED if serves else Status.FAILED)


def test_pages_show_what_is_sent_where(api: APIClient, browser: Client, two: Instances) -> None:
    deployment = served(two)
    first, second = sorted(two.plan.document["placement"])
    traffic = {
        first: InstanceTraffic(
            node=first, condition="ready", open=True, requests=3, waiting=7, kv_usage=0.25,
            answered_total=30, output_tokens_per_s=41.5, message="no vllm:x among its metrics",
        ),
        second: InstanceTraffic(
            node=second, condition="ready", open=False, message="it answered 500",
            answered_total=10, failed_total=4,
        ),
    }  # fmt: skip
    two.coordinator.report(generation=deployment.generation, instances=traffic)
    for address in (f"/deployments/{deployment.pk}/", f"/monitor/?cluster={two.cluster.pk}"):
        page = browser.get(address).content.decode()
        contains(
            page, "75.0 %", "41.5", "left alone", "it answered 500", "no vllm:x among its metrics"
        )
    (busy, failing) = api.get(f"/api/v1/deployments/{deployment.pk}/instances/").json()["instances"]
    assert (busy["requests"], busy["waiting"], busy["share"]) == (3, 7, 0.75)
    assert (failing["failures"], failing["left_alone"]) == (4, True)


@pytest.mark.parametrize("end", ["", "/"])
def test_a_url_in_place_of_a_node_is_no_business_of_its_agent(two: Instances, end: str) -> None:
    first, second = sorted(two.plan.document["placement"])
    deployment = two.deploy(backend_by_node={first: f"http://192.0.2.7:8000{end}"})
    assert two.agents[first].desired().instances == ()
    plan = two.coordinator.plan
    (known,) = plan.instances
    assert (known.name, known.url, known.api_key) == (first, "http://192.0.2.7:8000", "")
    two.agents[second].beat(Phase.READY, generation=deployment.generation, instances=[told(second)])
    assert fresh(deployment).status == Status.READY


def test_coordinators_wait_for_no_instance_of_a_node_that_is_drained(two: Instances) -> None:
    served(two)
    drained, other = sorted(two.plan.document["placement"])

    def told_of() -> tuple[list[str], int]:
        plan = two.coordinator.plan
        return [one.name for one in plan.instances], plan.instances_total

    row = Drain.objects.create(node=two.agents[drained].row, began_at=timezone.now())
    assert told_of() == ([drained, other], 2)
    row.let_go_at = timezone.now()
    row.save()
    assert told_of() == ([other], 1)
    Drain.objects.create(
        node=two.agents[other].row, began_at=timezone.now(), let_go_at=timezone.now()
    )
    assert told_of() == ([], 2)


def test_transformers_is_asked_by_the_name_of_its_checkpoint(two: Instances) -> None:
    first = min(two.plan.document["placement"])
    deployment = two.deploy(backend_by_node={first: "transformers"})
    two.ready(generation=deployment.generation)
    plan = two.coordinator.plan
    one = plan.instances[0]
    assert (one.model, one.has_metrics, one.tells_usage) == ("/models/tiny-llama", False, False)
    assert [each.takes_cache_salt for each in plan.instances] == [False, True]


@pytest.mark.parametrize(
    ("node", "backend", "words"),
    [
        *(
            ("", backend, ("vllm",) if backend else ())
            for backend in (
                "sglang", "http://", "https://host:0", "http://h/path", "HTTP://h:1",
                "http://h:1?a=b", "http://h:1/?", "http://h:1#a", "http://a b", "",
            )
        ),
        ("nobody", "vllm", ("nobody", "no instance")),
    ],
)  # fmt: skip
def test_a_backend_that_is_none_is_refused_with_what_would_be(
    api: APIClient, two: Instances, node: str, backend: str, words: tuple[str, ...]
) -> None:
    first = node or min(two.plan.document["placement"])
    body = {"plan": two.plan.pk, "backend_by_node": {first: backend}}
    refused(api.post("/api/v1/deployments/", body, format="json"), *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "rack 1"}, ("'rack 1'", "name: String should match pattern")),
        ({"name": "n" * 65}, ("name: String should match pattern",)),
        ({"name": "pipelines"}, ("'pipelines'", "what pipelines are called")),
        ({"gpus": [2**40]}, ("gpus.0: Input should be less than",)),
    ],
)
def test_a_plan_with_an_instance_that_no_message_can_tell_of_is_not_deployed(
    api: APIClient, two: Instances, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    two.plan.document["instances"][0] |= change
    two.plan.save(update_fields=["document"])
    answer = api.post("/api/v1/deployments/", {"plan": two.plan.pk}, format="json")
    refused(answer, "can be run by no agent", *words)
    first = two.agents[min(two.plan.document["placement"])]
    assert first.beat(Phase.IDLE, generation=0) == 0


def test_the_form_takes_backends_as_words(browser: Client, two: Instances) -> None:
    first = min(two.plan.document["placement"])
    address = f"/deployments/new?plan={two.plan.pk}"
    denied(browser.post(address, {"backend_by_node": f"{first}=sglang"}), 422, "is no backend")
    answer = browser.post(address, {"backend_by_node": f"{first}=vllm", "theta": "1.5"})
    assert answer.status_code == 302
    deployment = Deployment.unscoped.latest("pk")
    assert (deployment.backend_by_node, deployment.theta) == ({first: "vllm"}, 1.5)
    shows(browser.get(f"{address}&again={deployment.pk}"), f"{first}=vllm")


def test_a_mixed_plan_has_pipelines_beside_its_instances(cluster: Cluster, user: Any) -> None:
    there = Instances(cluster, user, whole=1, method="mixed")
    assert there.plan.document["method_choice"]["chosen"] == "instances and pipelines"
    there.deploy()
    (node,) = (one["node"] for one in there.plan.document["instances"])
    plan = there.coordinator.plan
    assert node not in plan.placement.layers
    assert plan.placement.layers
    assert node not in {peer.name for peer in plan.peers}
    assert node not in plan.routing_weights["source"]
    assert plan.pipelines_tokens_per_s is not None
    other = next(iter(plan.placement.layers))
    assert there.agents[other].desired().assignment is not None


def test_pipelines_beside_instances_have_their_own_row(browser: Client, two: Instances) -> None:
    deployment = two.deploy()
    pipelines = InstanceTraffic(node="", condition="ready", open=True, answered_total=5)
    two.coordinator.report(generation=deployment.generation, instances={PIPELINES: pipelines})
    shows(browser.get(f"/deployments/{deployment.pk}/"), "the pipelines", "100.0 %")


def test_an_emulated_node_runs_no_instance(api: APIClient, two: Instances) -> None:
    first = min(two.plan.document["placement"])
    node = Node.unscoped.get(cluster=two.cluster, name=first)
    node.hardware = {**(node.hardware or {}), "emulated": True}
    node.save()
    body = {"plan": two.plan.pk}
    refused(api.post("/api/v1/deployments/", body, format="json"), first, "emulated")


def test_a_roll_back_deploys_with_the_backends_that_were(api: APIClient, two: Instances) -> None:
    first = min(two.plan.document["placement"])
    before = two.deploy(backend_by_node={first: "vllm"}, theta=5.0)
    two.ready(generation=before.generation)
    now = two.deploy()
    answer = answered(api.post(f"/api/v1/deployments/{now.pk}/roll-back/"), 202)
    again = Deployment.unscoped.get(pk=answer.json()["id"])
    assert (again.backend_by_node, again.theta) == ({first: "vllm"}, 5.0)
    (order,) = two.agents[first].desired().instances
    assert order.backend == "vllm"


def test_what_serves_goes_on_while_the_next_plan_comes_up(two: Instances) -> None:
    first, second = sorted(two.plan.document["placement"])
    served(two)
    Node.unscoped.filter(cluster=two.cluster, name=first).update(profile_name="small")
    two.plan = plan_by(two.cluster, two.model, "instances")
    assert list(two.plan.document["placement"]) == [second]
    two.deploy()
    left_out = two.agents[first].desired()
    assert (left_out.continues, left_out.instances) == (True, ())


def test_pipelines_end_where_instances_follow(browser: Client, cluster: Cluster, user: Any) -> None:
    there = Instances(cluster, user, whole=2, method="pipelines")
    before = there.deploy()
    there.plan = plan_by(cluster, there.model, "instances")
    page = browser.get(f"/deployments/new?plan={there.plan.pk}").content.decode()
    assert "requests under way there end with an error" in page
    after = there.deploy()
    assert after.follows_generation is None
    assert before.pk != after.pk
    again = there.deploy()
    assert again.follows_generation == after.generation
