"""A node is measured on request; what it was found to be is kept, exported, and used by plans."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.deployment.models import Profiling
from helixweb.deployment.profiling import order_profiling
from helixweb.inventory.models import Cluster, LanguageModel, Node, Origin, Profile, ProfileVersion
from helixweb.inventory.services import problems
from helixweb.planning.services import starting
from planner.domain.layer_times import LayerTimes
from planner.domain.node_memory import EndRoom, KvMinimum, NodeMemory
from planner.plan_options import PlanOptions
from planner.serialization import plan_from_dict
from runtime.protocol.profiling import (
    FittedEquation,
    MeasuredPoint,
    NodeMeasurement,
    ProfileOrder,
    ProfilingPhase,
    ProfilingProgress,
)
from tests.helixweb.looking import answered, denied, fresh, shows
from tests.helixweb.process_doubles import HARDWARE, FakeAgent, FakeCluster
from tests.helixweb.searching import searched
from tests.helixweb.site_in_process import Shell

FIT = FittedEquation(
    layers=5, parameters=(1e-6, 1e-4, 0, 1e-3), points=8, median_error=0.031, worst_error=0.12
)
FOUND = NodeMeasurement(
    gpu="CPU",
    vram_bytes=9e6,
    max_layers=2,
    tokens_per_s=(300.0, 140.0),
    kv_capacity_token_layers=(900.0, 400.0),
    layer_times=LayerTimes(prompt=((64.0, 0.01),), decode=((1.0, 0.001), (4.0, 0.002))),
    prompt_fit=FIT,
    decode_fit=FIT,
    points=(
        MeasuredPoint(
            phase="decode", layers=5, batch=1, tokens=32, seconds=0.005, median_s=0.006, runs=4
        ),
    ),
    nic_bytes_per_s=1.25e8,
    seconds=41.0,
    waited_s=3.0,
)


class Measured:
    """A cluster whose agents are asked to measure."""

    def __init__(self, cluster: Cluster, user: Any) -> None:
        self.cluster = FakeCluster(cluster, user)
        self.user = user

    def agent(self, name: str) -> FakeAgent:
        return self.cluster.agents[name]

    def node(self, name: str) -> Node:
        return Node.unscoped.get(name=name)

    def beat(self, name: str, progress: ProfilingProgress | None = None) -> ProfileOrder | None:
        """One heartbeat of an idle node; what its answer orders."""
        body: dict[str, Any] = {"observed": {"generation": 0, "phase": "idle"}}
        if progress is not None:
            body["profiling"] = progress.model_dump(mode="json")
        answer = answered(self.agent(name).http.post("/api/v1/agent/heartbeat", body), 200)
        ordered = answer.json()["profile"]
        return None if ordered is None else ProfileOrder.model_validate(ordered)

    def tell(self, name: str, number: int, phase: str, **more: Any) -> ProfileOrder | None:
        """The same of a node that tells how far it is with that order."""
        phase_of = ProfilingPhase(phase)
        return self.beat(name, ProfilingProgress(id=number, phase=phase_of, **more))

    def end(self, number: int, name: str, found: NodeMeasurement = FOUND) -> None:
        """The node has measured what that order says, and has no other."""
        assert self.tell(name, number, "done", measurement=found) is None

    def measure(self, name: str, found: NodeMeasurement = FOUND) -> Profiling:
        row = self.order(name)
        self.end(row.pk, name, found)
        return fresh(row)

    def order(self, name: str) -> Profiling:
        model = LanguageModel.objects.get(pk=self.cluster.model.pk)
        return order_profiling(self.node(name), model, user=self.user, now=timezone.now())

    def order_all(self, api: APIClient) -> list[int]:
        """Which nodes one click orders, or has ordered before."""
        address = f"/api/v1/clusters/{self.cluster.cluster.pk}/measure/"
        rows = api.post(address, {"model": self.cluster.model.pk}).json()
        return [row["node"] for row in rows]


def test_a_heartbeat_is_answered_with_the_order_until_it_is_done(measured: Measured) -> None:
    assert measured.beat("tower") is None
    row = measured.order("tower")
    ordered = measured.beat("tower")
    assert ordered.id == row.pk
    assert ordered.checkpoint == "/models/tiny-llama"
    assert ordered.mean_prompt_tokens == 64
    assert measured.tell("tower", row.pk, "waiting", done=0.5, message="it serves") == ordered
    assert (fresh(row).state, row.done) == (Profiling.State.WAITING, 0.5)
    measured.end(row.pk, "tower")
    assert fresh(row).state == Profiling.State.DONE
    assert measured.beat("laptop") is None


def test_a_chosen_kv_minimum_holds_for_all_measurements(measured: Measured, api: APIClient) -> None:
    end = {"max_layers": 2}
    memory = {"first": end, "last": end, "both": end}
    chosen = {"requests": 6, "tokens": 224}
    profile = Profile.unscoped.get(name="big")
    changed = {"memory": {**memory, "kv_minimum": chosen}}
    assert api.patch(f"/api/v1/profiles/{profile.pk}/", changed).status_code == 200
    found = FOUND.model_copy(
        update={"memory": NodeMemory(**{k: EndRoom(**v) for k, v in memory.items()})}
    )
    for _ in range(2):
        row = measured.order("tower")
        ordered = measured.beat("tower")
        assert ordered.kv_minimum == KvMinimum(**chosen)
        measured.end(row.pk, "tower", found)
    measured.order("mini")
    assert measured.beat("mini").kv_minimum is None


def test_what_was_measured_is_the_nodes_profile_beside_what_was(measured: Measured) -> None:
    times = {"2": {"prefill": [1e-6, 0.0, 0.0, 1e-3], "decode": [0.0, 1e-4, 0.0, 1e-3]}}
    Profile.unscoped.filter(name="big").update(price_per_hour=2.5, instance_times=times)
    room = EndRoom(max_layers=1, kv_token_layers_less=250.0)
    memory = NodeMemory(
        first=room,
        last=room,
        both=EndRoom(max_layers=0),
        kv_minimum=KvMinimum(requests=1, tokens=128),
    )
    row = measured.measure("tower", FOUND.model_copy(update={"memory": memory}))
    profile = row.version.profile
    assert (profile.name, profile.origin) == ("big", Origin.MEASURED)
    assert profile.tokens_per_s == [300.0, 140.0]
    assert (profile.price_per_hour, profile.instance_times) == (2.5, times), "not told of"
    numbers = [(one.number, one.origin, one.node) for one in profile.versions.all()]
    assert numbers == [(2, "measured", "tower"), (1, "imported", "")]
    assert row.version.evidence["decode_fit"]["median_error"] == 0.031
    problem = problems.build_problem(measured.cluster.cluster, measured.cluster.model)
    assert problem.profile_of("tower").memory == memory


def test_a_node_that_shares_its_profile_gets_its_own_for_each_model(measured: Measured) -> None:
    small = Profile.unscoped.get(name="small")
    other = LanguageModel.objects.create(
        name="other", num_layers=2, activation_bytes_per_token=2, bytes_per_layer=1e3
    )
    small.pk, small.model = None, other
    small.save()
    row = measured.measure("laptop")
    assert row.version.profile.name == "laptop"
    assert measured.node("laptop").profile_name == "laptop"
    assert measured.node("mini").profile_name == "small"
    assert set(Profile.unscoped.filter(name="small").values_list("origin", flat=True)) == {
        Origin.IMPORTED
    }
    copied = Profile.unscoped.get(name="laptop", model=other)
    assert copied.tokens_per_s == small.tokens_per_s


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        (Node, {"joined_at": None}, "has not joined"),
        (Node, {"hardware": {"emulated": True}}, "is emulated"),
        (LanguageModel, {"checkpoint": ""}, "has no checkpoint"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    measured: Measured, api: APIClient, kind: Any, change: dict[str, Any], told: str
) -> None:
    kind._base_manager.update(**change)
    asked = {"node": measured.node("tower").pk, "model": measured.cluster.model.pk}
    denied(api.post("/api/v1/profilings/", asked), 409, told)


def test_one_node_is_measured_once_at_a_time_or_not(measured: Measured, api: APIClient) -> None:
    row = measured.order("tower")
    asked = {"node": row.node_id, "model": row.model_id}
    assert api.post("/api/v1/profilings/", asked).status_code == 409
    assert api.delete(f"/api/v1/profilings/{row.pk}/").status_code == 204
    assert measured.beat("tower") is None
    measured.end(row.pk, "tower")
    assert (fresh(row).state, row.version) == (Profiling.State.CANCELLED, None)
    assert api.delete(f"/api/v1/profilings/{row.pk}/").status_code == 409


def test_what_failed_says_why_and_the_profile_stays(measured: Measured) -> None:
    row = measured.order("tower")
    said = "no checkpoint there; copy it"
    assert measured.tell("tower", row.pk, "failed", message=said) is None
    assert (fresh(row).state, row.message) == (Profiling.State.FAILED, said)
    assert Profile.unscoped.get(name="big").origin == Origin.IMPORTED


def test_a_result_that_no_profile_can_be_is_refused(measured: Measured) -> None:
    row = measured.measure("tower", FOUND.model_copy(update={"tokens_per_s": (300.0,)}))
    assert row.state == Profiling.State.FAILED
    assert "tokens_per_s has 1 entries" in row.message


def test_a_person_orders_it_on_the_page_and_may_cancel(measured: Measured, browser: Client) -> None:
    node = measured.node("tower")
    page = f"/clusters/{node.cluster_id}/nodes/{node.pk}/"
    assert "Measure the node" in browser.get(page).content.decode()
    browser.post(f"{page}measure", {"model": measured.cluster.model.pk})
    shows(browser.get(page), "Measuring it for tiny-llama", 'value="0.000"')
    browser.post(f"{page}measure/cancel")
    browser.post(f"{page}measure/cancel")
    assert "Measure the node" in browser.get(page).content.decode()
    for none in ("", "9" * 5000):
        answer = browser.post(f"{page}measure", {"model": none}, follow=True)
        assert "Choose the model" in answer.content.decode()


def test_earlier_versions_can_be_used(measured: Measured, api: APIClient, browser: Client) -> None:
    row = measured.measure("tower")
    profile = row.version.profile
    shows(browser.get(f"/profiles/{profile.pk}/"), "3.1%, 12.0%", "plans use it")
    first = profile.versions.get(number=1)
    browser.post(f"/profiles/{profile.pk}/versions/{first.pk}/use")
    assert fresh(profile).tokens_per_s == [400.0, 200.0, 100.0]
    assert profile.origin == Origin.IMPORTED
    assert "30% slower" in browser.get(f"/profiles/{profile.pk}/").content.decode()
    answer = api.post(f"/api/v1/profile-versions/{row.version.pk}/use/")
    assert answer.json()["tokens_per_s"] == [300.0, 140.0]
    assert api.delete(f"/api/v1/profile-versions/{row.version.pk}/").status_code == 409
    assert api.delete(f"/api/v1/profile-versions/{first.pk}/").status_code == 204


def test_an_exported_profile_is_read(measured: Measured, api: APIClient, browser: Client) -> None:
    row = measured.measure("tower")
    pk = row.version.profile_id
    document = json.loads(browser.get(f"/profiles/{pk}/profile.json").content)
    assert document == api.get(f"/api/v1/profiles/{pk}/export/").json()
    assert document["evidence"]["nic_bytes_per_s"] == 1.25e8
    cluster = measured.cluster.cluster.pk
    asked = {"cluster": cluster, "document": document, "name": "copy"}
    answered(api.post("/api/v1/profiles/import/", asked), 201)
    copy = Profile.unscoped.get(name="copy")
    assert copy.layer_times == row.version.profile.layer_times
    page = browser.post(
        "/profiles/import", {"cluster": cluster, "name": "", "text": json.dumps(document)}
    )
    assert page.status_code == 302
    versions = ProfileVersion.unscoped.filter(profile=pk).order_by("number")
    assert [version.number for version in versions] == [1, 2, 3]
    assert versions[2].recorded_at <= timezone.now()


def test_an_estimate_is_marked_in_plans(
    measured: Measured, api: APIClient, browser: Client
) -> None:
    model = LanguageModel.objects.create(
        name="llama", num_layers=4, activation_bytes_per_token=8192, bytes_per_layer=4e8,
        num_heads=32, num_kv_heads=8,
    )  # fmt: skip
    cluster = measured.cluster.cluster
    asked = {"cluster": cluster.pk, "model": model.pk, "gpu": "L4"}
    answer = answered(api.post("/api/v1/profiles/estimate/", asked), 201)
    assert answer.json()["origin"] == "estimated"
    assert answer.json()["gpu"] == "L4 (estimated from its data sheet)"
    assert api.post("/api/v1/profiles/estimate/", asked).status_code == 409
    answered(api.post("/api/v1/profiles/estimate/", asked | {"gpu": "Abacus"}), 400)
    page = f"/clusters/{cluster.pk}/profiles/estimate"
    assert browser.post(page, {"model": model.pk, "gpu": "T4", "name": ""}).status_code == 302
    told = browser.post(page, {"model": measured.cluster.model.pk, "gpu": "T4", "name": "x"})
    assert "give num_heads" in told.content.decode()
    nodes = Node.unscoped.filter(cluster=cluster)
    nodes.update(profile_name="L4")
    options = PlanOptions(objective="flow", time_limit_s=1)
    run = starting.start_plan_run(cluster=cluster, model=model, options=options, user=measured.user)
    found = plan_from_dict(searched(run).document)
    shown = browser.get(f"/plans/{run.pk}/").content.decode()
    names = ", ".join(
        sorted(found.placement.layers, key=lambda name: (found.placement.layers[name].first, name))
    )
    assert f"Speeds of {names} are estimates from data sheets" in shown


def unmeasured(measured: Measured) -> None:
    """No node has a profile but tower, for which it was estimated."""
    Node.unscoped.exclude(name="tower").update(profile_name="")
    Profile.unscoped.update(origin=Origin.ESTIMATED)


def test_one_click_measures_all_nodes(measured: Measured, api: APIClient, browser: Client) -> None:
    unmeasured(measured)
    measured.agent("mini").move("tcp://10.0.0.9:7001")  # a machine of its own
    cluster, model = measured.cluster.cluster, measured.cluster.model
    address = f"/clusters/{cluster.pk}/measure"
    assert browser.post(address, {"model": model.pk}).status_code == 302
    assert browser.post(address, {"model": model.pk}).status_code == 302, "pressed twice"
    first, second = Profiling.unscoped.exclude(node__name="mini").order_by("pk")
    assert Profiling.unscoped.count() == 3
    assert measured.beat("mini") is not None
    assert measured.beat(second.node.name) is None, "they share cores"
    assert measured.beat(first.node.name) is not None
    measured.tell(first.node.name, first.pk, "measuring", done=0.5)
    began_at = timezone.now() - timedelta(seconds=60)
    Profiling.unscoped.filter(pk=first.pk).update(began_at=began_at)
    page = browser.get(f"/clusters/{cluster.pk}/").content.decode()
    assert f"after {first.node.name}, on the same machine" in page
    assert "about 3 min left" in page, "a minute for the first, two for the second"
    (told,) = api.get("/api/v1/profilings/", {"node": first.node_id}).json()["results"]
    assert 55 < told["left_s"] < 120
    measured.end(first.pk, first.node.name)
    assert measured.beat(second.node.name) is not None
    assert measured.order_all(api) == [
        row.node_id for row in Profiling.unscoped.order_by("node") if row.is_open
    ]


def test_nodes_with_gpus_are_measured_at_once(
    measured: Measured, api: APIClient, shell: Shell
) -> None:
    unmeasured(measured)
    for name in measured.cluster.agents:
        gpus = [{"name": "L4", "memory_bytes": 24_000_000_000}]
        hardware = {**HARDWARE, "gpus": gpus, "memory_budget_bytes": int(FOUND.vram_bytes)}
        Node.unscoped.filter(name=name).update(hardware=hardware)
    assert shell("node", "measure", "--no-wait") == 0
    orders = {name: measured.beat(name) for name in measured.cluster.agents}
    assert all(orders.values())
    for name, order in orders.items():
        if name == "mini":
            measured.tell(name, order.id, "failed", message="no room for a layer")
        else:
            measured.tell(name, order.id, "done", measurement=FOUND)
    assert measured.order_all(api) == [measured.node("mini").pk], "the others are fresh"
    assert shell("node", "measure", "tower", "--no-wait") == 0, "one by name, fresh or not"
    assert "tower  ordered" in shell.out
    assert shell("node", "measure", "nobody") == 3


def test_a_node_alike_times_a_few_steps(
    measured: Measured, api: APIClient, browser: Client
) -> None:
    for name in measured.cluster.agents:
        body = {
            "observed": {"generation": 0, "phase": "idle"},
            "reach": {"listens": True},
        }
        assert measured.agent(name).http.post("/api/v1/agent/heartbeat", body).status_code == 200
    points = tuple(
        MeasuredPoint(
            phase=phase, layers=5, batch=batch, tokens=32, seconds=s, median_s=s, runs=4
        )
        for phase, batch, s in (("decode", 1, 0.005), ("decode", 4, 0.006), ("decode", 2, 0.0055),
                                ("prompt", 1, 0.02))
    )  # fmt: skip
    found = FOUND.model_copy(
        update={
            "points": points,
            "vram_bytes": float(HARDWARE["memory_budget_bytes"]),
            "checkpoint": "/models/tiny-llama",
        }
    )
    measured.measure("tower", found)
    unmeasured(measured)
    source = Profile.unscoped.filter(name=measured.node("tower").profile_name)
    source.update(origin=Origin.MEASURED)
    names = [Node.unscoped.get(pk=pk).name for pk in measured.order_all(api)]
    assert sorted(names) == ["laptop", "mini"]
    for name, slower, state in zip(names, (1.1, 1.5), ("done", "cancelled"), strict=True):
        order = measured.beat(name)
        assert [(one.phase, one.batch) for one in order.check] == [
            ("decode", 1), ("decode", 4), ("prompt", 1),
        ]  # fmt: skip
        page = browser.get(f"/clusters/{measured.cluster.cluster.pk}/")
        shows(page, "checks what tower measured")
        checked = tuple(
            one.model_copy(update={"seconds": slower * one.seconds}) for one in order.check
        )
        measured.tell(name, order.id, "done", checked=checked)
        assert Profiling.unscoped.get(pk=order.id).state == state
    alike = Profile.unscoped.get(name=names[0])
    assert alike.tokens_per_s == list(FOUND.tokens_per_s)
    version = alike.versions.first()
    assert (version.node, version.evidence["like"]) == (names[0], "tower")
    whole = measured.beat(names[1])
    assert whole.check == (), "half as fast again: no node of the same kind"
    message = Profiling.unscoped.filter(state="cancelled").get().message
    assert message == "measured whole instead: steps take 1.50 times as long as on tower"


def test_a_plan_that_lacks_measurements_starts_them(measured: Measured, api: APIClient) -> None:
    unmeasured(measured)
    cluster, model = measured.cluster.cluster, measured.cluster.model
    ask = {"cluster": cluster.pk, "model": model.pk, "options": {"time_limit_s": 1.0}}
    for _ in range(2):
        answer = api.post("/api/v1/plan-runs/", ask)
        assert answer.status_code in (400, 409, 422)
        assert "are measured for it now: laptop, mini;" in answer.json()["detail"]
    assert Profiling.unscoped.count() == 3, "the estimate of tower is no measurement"
    LanguageModel.objects.update(checkpoint="")
    assert "has no compute profile" in api.post("/api/v1/plan-runs/", ask).json()["detail"]
