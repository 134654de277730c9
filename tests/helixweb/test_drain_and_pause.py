"""A node is left free and taken in again; a deployment is paused; a plan is refused."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient
from test_repairs import Repaired

from helixweb.common.models import Event
from helixweb.deployment.models import Drain, Repair, Status
from helixweb.deployment.services import deploying, draining
from helixweb.inventory.models import Change, Cluster, Node, Replanning
from runtime.protocol.control import DrainProgress
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, denied, fresh, shows, tight
from tests.helixweb.process_doubles import FakeAgent, FakeCluster, ServingCluster
from tests.helixweb.recorded import recorded

NODE = "mini"


@pytest.fixture(autouse=True)
def _silence_takes_long(settings: Any) -> None:
    """Time goes on here, since what was said before a drain does not count."""
    settings.HELIX_NODE_LOST_AFTER_S = 3600.0


class Served(ServingCluster):
    """With a node to drain."""

    @property
    def agent(self) -> FakeAgent:
        return self.agents[NODE]

    @property
    def drain(self) -> Drain:
        return Drain.unscoped.get(node__name=NODE)

    @property
    def status(self) -> str:
        return self.deployment.status

    def begin(self) -> Drain:
        return draining.drain(self.agent.row, user=self.user, now=timezone.now())

    def tell(self, *, requests: int, needed: bool = False, **report: Any) -> None:
        progress = DrainProgress(requests=requests, needed=needed)
        self.coordinator.report(draining={NODE: progress}, **report)

    def let_go(self) -> None:
        self.begin()
        self.tell(requests=0)


@pytest.fixture
def served(cluster: Cluster, user: Any) -> Served:
    served: Served = recorded(lambda: Served(cluster, user))
    assert served.status == Status.READY
    return served


def sentences() -> list[str]:
    """What the cluster's page tells of, in order."""
    events = Event.objects.filter(topic__startswith="cluster:").order_by("pk")
    return [event.data["text"] for event in events if "text" in event.data]


def test_when_no_request_is_left_the_node_lets_go_of_all(served: Served, browser: Client) -> None:
    served.begin()
    assert served.coordinator.desired().draining == (NODE,)
    assert served.drain.requests is None
    served.tell(requests=2)
    assert (served.drain.requests, served.drain.state) == (2, Drain.State.DRAINING)
    assert served.agent.desired().assignment is not None
    served.tell(requests=0)
    assert served.drain.state is Drain.State.LETTING_GO
    desired = served.agent.desired()
    assert (desired.generation, desired.assignment, desired.continues) == (1, None, False)
    served.agent.beat(Phase.STOPPING, generation=1)
    assert served.drain.state is Drain.State.LETTING_GO
    served.agent.beat(Phase.IDLE, generation=1)
    assert served.drain.state is Drain.State.DRAINED
    assert served.status == Status.READY, "the others do without it"
    assert f"Node {NODE} is drained: it holds nothing." in sentences()
    page = browser.get(f"/deployments/{served.deployment.pk}/").content.decode()
    contains(page, f"Node {NODE} is drained.", f"Take {NODE} in again")


def test_a_node_that_is_needed_keeps_its_layers(served: Served, browser: Client) -> None:
    served.begin()
    served.tell(requests=0, needed=True)
    assert served.drain.needed
    assert served.agent.desired().assignment is not None
    shows(browser.get(f"/deployments/{served.deployment.pk}/"), "requests cannot do without it yet")


def test_what_a_coordinator_said_before_or_of_another_generation_is_none(served: Served) -> None:
    served.tell(requests=0)
    served.begin()
    draining.follow_drains(now=timezone.now())
    assert served.drain.state is Drain.State.DRAINING
    served.tell(requests=0, generation=7)
    assert served.drain.state is Drain.State.DRAINING


def test_a_node_that_holds_nothing_is_drained_at_once(cluster: Cluster, user: Any) -> None:
    idle = FakeCluster(cluster, user)
    draining.drain(idle.agents[NODE].row, user=user, now=timezone.now())
    draining.follow_drains(now=timezone.now())
    idle.agents[NODE].beat(Phase.IDLE, generation=0)
    assert Drain.unscoped.get().state is Drain.State.DRAINED


def test_a_node_that_is_taken_in_again_gets_its_layers_back(served: Served) -> None:
    served.let_go()
    served.agent.beat(Phase.IDLE, generation=1)
    draining.take_in(served.drain, user=served.user, now=timezone.now())
    assert served.coordinator.desired().draining == ()
    assert served.agent.desired().assignment is not None
    served.agent.beat(Phase.LOADING, generation=1)
    assert served.status == Status.DEPLOYING
    served.agent.beat(Phase.READY, generation=1)
    assert served.status == Status.READY


def test_a_plan_with_the_node_is_not_deployed_meanwhile(served: Served) -> None:
    served.begin()
    with pytest.raises(deploying.DeployRefused, match="mini is being drained; take it in again"):
        served.deploy()


def test_who_drained_what_and_when_is_in_log_and_events(served: Served, api: APIClient) -> None:
    answer = answered(api.post("/api/v1/drains/", {"node": served.agent.row.pk}), 201)
    assert answer.json()["state"] == "draining"
    denied(api.post("/api/v1/drains/", {"node": served.agent.row.pk}), 409, "being drained already")
    assert [row["node_name"] for row in api.get("/api/v1/drains/").json()["results"]] == [NODE]
    assert api.delete(f"/api/v1/drains/{answer.json()['id']}/").status_code == 204
    texts = Change.unscoped.filter(row_id=served.agent.row.pk, kind="node").values_list(
        "text", flat=True
    )
    assert {"drained", "taken in again"} <= set(texts)
    said = sentences()
    assert any(text.endswith(f"drains node {NODE}.") for text in said)
    assert any(text.endswith(f"takes node {NODE} in again.") for text in said)


def test_a_node_that_never_joined_cannot_be_drained(cluster: Cluster, api: APIClient) -> None:
    node = Node.unscoped.filter(cluster=cluster).first()
    denied(api.post("/api/v1/drains/", {"node": node.pk}), 409, "has not joined")


def test_the_buttons_of_the_pages_drain_and_take_in(served: Served, browser: Client) -> None:
    node = served.agent.row
    place = f"/clusters/{node.cluster_id}/nodes/{node.pk}/"
    assert "Drain the node" in browser.get(place).content.decode()
    answer = browser.post(f"{place}drain", {"from": "deployment"}, follow=True)
    assert answer.redirect_chain[-1][0] == f"/deployments/{served.deployment.pk}/"
    assert "is being drained" in answer.content.decode()
    assert "being drained already" in browser.post(f"{place}drain", follow=True).content.decode()
    answer = browser.post(f"{place}take-in", follow=True)
    assert answer.redirect_chain[-1][0] == place
    assert not Drain.unscoped.exists()
    assert "Drain the node" in browser.post(f"{place}take-in", follow=True).content.decode()


def test_a_node_whose_agent_is_told_to_end_counts_as_lost_at_once(served: Served) -> None:
    answer = served.agent.http.post(
        "/api/v1/agent/heartbeat",
        {"observed": {"generation": 1, "phase": "ready"}, "leaving": True},
    )
    assert answer.status_code == 200
    assert served.agent.row.state == "lost"
    assert served.status == Status.DEGRADED
    assert f"{NODE} goes: its agent was told to end." in sentences()
    served.agent.beat(Phase.READY, generation=1)
    assert served.status == Status.READY


def test_a_deployment_is_paused_and_resumed(
    served: Served, browser: Client, api: APIClient
) -> None:
    pk = served.deployment.pk
    assert api.post(f"/api/v1/deployments/{pk}/pause/").json()["paused_at"]
    assert api.post(f"/api/v1/deployments/{pk}/pause/").status_code == 409
    assert served.coordinator.desired().paused
    assert "has not said yet that it is" in browser.get(f"/deployments/{pk}/").content.decode()
    served.coordinator.report(paused=True, requests_waiting=3)
    page = tight(browser.get(f"/deployments/{pk}/").content.decode())
    contains(page, "3 requests wait", ">Resume<")
    answer = browser.post(f"/deployments/{pk}/resume", follow=True)
    assert ">Pause<" in tight(answer.content.decode())
    assert not served.coordinator.desired().paused
    shows(browser.post(f"/deployments/{pk}/resume", follow=True), "is not paused")
    assert [text.partition(" ")[2] for text in sentences()[-2:]] == [
        "pauses tiny-llama: new requests wait.",
        "resumes tiny-llama.",
    ]
    browser.post(f"/deployments/{pk}/pause")
    assert api.post(f"/api/v1/deployments/{pk}/resume/").json()["paused_at"] is None


def test_what_follows_a_paused_deployment_is_paused(served: Served) -> None:
    deploying.pause(served.deployment, user=served.user, now=timezone.now())
    again = served.deploy()
    assert again.paused_at is not None
    assert served.coordinator.desired().paused


def test_a_refused_plan_fails_and_the_one_before_goes_on(served: Served, browser: Client) -> None:
    second = served.deploy()
    served.ready(generation=2)
    why = "plan of generation 2 cannot be served: no tokenizer"
    served.coordinator.report(generation=2, refused_generation=2, message=why)
    assert (fresh(second).status, second.message) == (Status.FAILED, why)
    assert second.is_changing
    assert all(agent.desired().continues for agent in served.agents.values())
    page = browser.get(f"/deployments/{second.pk}/").content.decode()
    assert "The coordinator cannot serve this plan." in page
    contains(page, why, "The previous deployment goes on serving.")
    back = deploying.roll_back(second, user=served.user, now=timezone.now())
    assert back.follows_generation == 2
    served.ready(generation=3)
    served.coordinator.report(generation=3)
    assert (fresh(back).status, back.is_changing) == (Status.READY, False)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("time_stands_still", "short_searches")
def test_a_placement_without_a_node_to_be_drained_is_deployed(cluster: Cluster, user: Any) -> None:
    repaired = Repaired(cluster, user, Replanning.AUTOMATIC)
    tower = repaired.cluster.agents["tower"]
    draining.drain(tower.row, user=user, now=repaired.now)
    assert repaired.until_offered_or_done() == [Repair.State.DEPLOYED]
    serving = repaired.serving
    assert "tower" not in serving.plan.document["placement"]
    for name in serving.plan.document["placement"]:
        repaired.cluster.agents[name].beat(Phase.READY, generation=serving.generation)
    assert Drain.unscoped.get().state is Drain.State.DRAINING, "the generation before still serves"
    repaired.cluster.coordinator.report(generation=serving.generation)
    assert Drain.unscoped.get().state is Drain.State.LETTING_GO
    tower.beat(Phase.IDLE, generation=serving.generation)
    assert Drain.unscoped.get().state is Drain.State.DRAINED
    assert repaired.beat(after_s=60.0) == [Repair.State.DEPLOYED], "it counts as no new node"
