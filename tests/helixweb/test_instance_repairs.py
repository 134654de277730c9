"""A node with whole-model instances is lost: what else could serve is found, and deployed."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.deployment.models import Repair
from helixweb.deployment.services import repairing
from helixweb.inventory.models import Cluster, Node, Replanning
from runtime.protocol.instance_orders import InstanceTraffic
from runtime.protocol.phases import Phase
from tests.helixweb.instance_doubles import Instances, told
from tests.helixweb.process_doubles import HEARD
from tests.helixweb.recorded import recorded
from tests.helixweb.test_repairs import Repaired as RepairedPipelines

# A search has a thread that looks into the database as well.
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("time_stands_still", "short_searches"),
]
State = Repair.State


@pytest.fixture
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes need no more."""
    monkeypatch.setattr(repairing, "SEARCH_S", 0.5)


class Repaired(RepairedPipelines):
    """Serves by `there.plan`; `until_offered_or_done` is what the task does every two seconds."""

    def __init__(self, there: Instances, **options: Any) -> None:
        self.there = there
        self.now = timezone.now()
        self.deployment = there.deploy(**options)
        there.ready(generation=self.deployment.generation)


def make(cluster: Cluster, user: Any, policy: Replanning) -> Instances:
    Cluster.unscoped.filter(pk=cluster.pk).update(replanning=policy)
    return recorded(lambda: Instances(cluster, user, whole=2, method="instances"))


def spare_machine(there: Instances) -> str:
    """One more that could hold the model, which the plan does not use."""
    (spare,) = set(there.agents) - set(there.plan.document["placement"])
    Node.unscoped.filter(cluster=there.cluster, name=spare).update(profile_name="whole")
    return spare


def test_another_machine_takes_the_place_of_a_lost_instance(cluster: Cluster, user: Any) -> None:
    here = Repaired(make(cluster, user, Replanning.AUTOMATIC))
    spare = spare_machine(here.there)
    lost, stays = sorted(here.there.plan.document["placement"])
    before = here.there.agents[stays].desired().instances
    here.there.silence(lost)
    assert here.until_offered_or_done() == [State.DEPLOYED]
    assert set(here.serving.plan.document["placement"]) == {stays, spare}
    assert here.there.agents[stays].desired().instances == before, "it goes on"
    row = Repair.unscoped.get()
    assert row.unmoved_tokens_per_s is not None
    assert row.flow_tokens_per_s == pytest.approx(2 * row.unmoved_tokens_per_s, rel=0.01)
    assert row.moved_bytes


def test_another_plan_is_offered_with_figures(cluster: Cluster, user: Any, browser: Client) -> None:
    here = Repaired(make(cluster, user, Replanning.ASK))
    spare_machine(here.there)
    here.there.silence(min(here.there.plan.document["placement"]))
    assert here.until_offered_or_done() == [State.OFFERED]
    page = browser.get(f"/deployments/{here.deployment.pk}/").content.decode()
    assert f"{Repair.unscoped.get().flow_tokens_per_s:,.0f} decode tokens/s" in page
    assert "Deploy this placement" in page


def test_without_another_machine_requests_only_go_around(cluster: Cluster, user: Any) -> None:
    here = Repaired(make(cluster, user, Replanning.AUTOMATIC))
    here.there.silence(min(here.there.plan.document["placement"]))
    assert here.until_offered_or_done() == [State.NEEDLESS]
    assert here.serving == here.deployment


@pytest.mark.parametrize("at_url", [False, True])
def test_what_others_bring_back_is_not_planned(cluster: Cluster, user: Any, at_url: bool) -> None:
    """An instance that its agent starts again, a server behind a URL."""
    there = make(cluster, user, Replanning.AUTOMATIC)
    name = min(there.plan.document["placement"])
    here = Repaired(there, backend_by_node={name: "http://192.0.2.7:8000"} if at_url else {})
    if at_url:
        there.silence(name)
    else:
        there.agents[name].beat(
            Phase.FAILED, generation=1, message="no", instances=[told(name, "waiting")]
        )
        there.coordinator.report(
            generation=1,
            instances={name: InstanceTraffic(node=name, condition="waiting", open=False)},
            nodes={name: HEARD.model_copy(update={"ready": False})},
        )
    assert here.beat() == here.beat(after_s=60.0) == []


def test_backends_of_lost_nodes_do_not_stand_in_the_way(cluster: Cluster, user: Any) -> None:
    there = make(cluster, user, Replanning.AUTOMATIC)
    lost, stays = sorted(there.plan.document["placement"])
    here = Repaired(there, backend_by_node={lost: "vllm", stays: "vllm"})
    spare_machine(there)
    there.silence(lost)
    assert here.until_offered_or_done() == [State.DEPLOYED], Repair.unscoped.get().why
    assert here.serving.backend_by_node == {stays: "vllm"}


def test_pipelines_beside_instances_are_repaired_too(cluster: Cluster, user: Any) -> None:
    Cluster.unscoped.filter(pk=cluster.pk).update(replanning=Replanning.AUTOMATIC)
    there = Instances(cluster, user, whole=1, method="mixed")
    (whole,) = {one["node"] for one in there.plan.document["instances"]}
    stages = set(there.plan.document["placement"]) - {whole}
    assert stages, "the small nodes have the model together"
    here = Repaired(there)
    lost = min(stages)
    Node.unscoped.filter(cluster=cluster, name=max(stages)).update(profile_name="whole")
    there.silence(lost)
    assert here.until_offered_or_done() == [State.DEPLOYED], Repair.unscoped.get().why
    assert lost not in here.serving.plan.document["placement"]
