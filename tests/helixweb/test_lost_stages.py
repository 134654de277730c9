"""A coordinator lost a stage: the site concludes at once, and pages follow what is so now."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.deployment.models import Repair, Status
from helixweb.inventory.models import Cluster
from runtime.protocol.control import NodeTraffic
from runtime.protocol.phases import Phase
from tests.helixweb.looking import contains
from tests.helixweb.process_doubles import HEARD, FakeCoordinator, ServingCluster
from tests.helixweb.recorded import recorded

pytestmark = pytest.mark.usefixtures("time_stands_still")
ENDED = "its process has ended"


class Served(ServingCluster):
    """Its deployment is ready; `name` is one of its nodes."""

    def __init__(self, cluster: Cluster, user: Any) -> None:
        super().__init__(cluster, user)
        self.name = next(iter(self.used_agents))
        Event.objects.all().delete()

    @property
    def status(self) -> tuple[str, str]:
        return self.deployment.status, self.deployment.message

    def events(self) -> list[dict[str, Any]]:
        """What its page was told since this was asked last."""
        rows = Event.objects.filter(topic=self.deployment.topic, type="deployment").order_by("pk")
        told = list(rows.values_list("data", flat=True))
        rows.delete()
        return told


@pytest.fixture
def served(cluster: Cluster, user: Any) -> Served:
    return recorded(lambda: Served(cluster, user))


def state(browser: Client, served: Served) -> str:
    """What htmx fetches when the page hears of an event."""
    answer = browser.get(f"/deployments/{served.deployment.pk}/", headers={"HX-Request": "true"})
    return answer.content.decode()


def test_a_lost_stage_degrades_the_deployment_at_once(served: Served, browser: Client) -> None:
    assert served.status == (Status.READY, "")
    served.coordinator.report(lost_nodes={served.name: ENDED})
    assert served.status == (Status.DEGRADED, f"node {served.name} lost")
    assert [told["status"] for told in served.events() if "status" in told] == ["degraded"]
    page = state(browser, served)
    contains(page, f"Degraded: node {served.name} lost", '<span class="badge bad">lost</span>')
    node = served.agents[served.name].row
    node_page = browser.get(reverse("node", args=[served.cluster.pk, node.pk])).content.decode()
    assert '<span class="badge bad">lost</span>' in node_page
    served.coordinator.report(lost_nodes={served.name: ENDED})
    assert served.events() == [], "nothing is new"
    served.coordinator.report()
    assert served.status == (Status.READY, "")
    assert served.events()


def timeline(api: APIClient, served: Served) -> Any:
    return api.get(f"/api/v1/deployments/{served.deployment.pk}/timeline/").json()


def test_the_timeline_shows_a_node_as_lost_until_it_is_back(
    served: Served, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def phases() -> list[str]:
        return [row[1] for row in timeline(api, served)["rows"] if row[0] == served.name]

    before = phases()
    later = timezone.now() + timedelta(seconds=4)
    monkeypatch.setattr(timezone, "now", lambda: later)
    served.ready()
    for _ in range(2):
        served.coordinator.report(lost_nodes={served.name: ENDED})
    assert phases() == [*before, "lost"]
    assert timeline(api, served)["summary"].endswith(f"Lost: {served.name}.")
    served.coordinator.report()
    assert phases() == [*before, "lost", "ready"]
    assert "Lost" not in timeline(api, served)["summary"]


def test_the_timeline_of_a_loss_ends_soon_after_it(
    served: Served, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.coordinator.report(lost_nodes={served.name: ENDED})
    much_later = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: much_later)
    assert max(begin + lasts for _, _, begin, lasts, _ in timeline(api, served)["rows"]) < 10


def test_one_note_names_loss_and_remedy(served: Served, browser: Client, settings: Any) -> None:
    def notes() -> str:
        page = state(browser, served)
        assert page.count('role="alert"') == 1
        assert "may serve on" not in page
        row = page[page.index(f'data-node="{served.name}"') :].split("</tr>")[0]
        assert '<span class="badge bad">lost</span>' in row
        return page[page.index('role="alert"') :].split('<section class="card">')[0]

    waits = f"waiting for the stages of: {served.name}"
    served.coordinator.report(lost_nodes={served.name: ENDED}, serving=False, message=waits)
    assert "its agent starts it again" in notes()
    assert notes().count("note-box") == 0
    assert waits in notes()
    node = served.agents[served.name].row
    silent = timezone.now() - timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S + 1)
    type(node).unscoped.filter(pk=node.pk).update(last_seen_at=silent)
    assert "its agent is silent. Start the agent" in notes()


def test_a_stage_that_another_coordinator_reaches_is_not_lost(served: Served, user: Any) -> None:
    second = FakeCoordinator(served.cluster, user, port=7050, name="back")
    generation = served.deployment.generation
    served.ready(generation=generation)
    for front in (served.coordinator, second):
        front.report(generation=generation)
    lost = {"generation": generation, "lost_nodes": {served.name: ENDED}}
    served.coordinator.report(**lost)
    assert served.status == (Status.READY, "")
    second.report(**lost)
    assert served.status == (Status.DEGRADED, f"node {served.name} lost")


def test_what_was_lost_before_this_generation_is_not_lost_in_it(served: Served) -> None:
    served.coordinator.report(generation=0, lost_nodes={served.name: ENDED})
    assert served.status == (Status.DEGRADED, "coordinator front has not taken up the plan yet")
    served.coordinator.report()
    assert served.status == (Status.READY, "")


def test_revisions_and_endpoint_are_as_new_as_the_status(served: Served, browser: Client) -> None:
    agent = served.used_agents[served.name]
    for phase, word in ((Phase.LOADING, "deploying"), (Phase.READY, "ready")):
        agent.beat(phase, generation=1)
        page = state(browser, served)
        revisions = page[page.index('id="revisions"') :]
        assert f"<td>{word}</td>" in revisions
        assert 'id="endpoint"' in page


@pytest.mark.parametrize("ended", [Repair.State.NEEDLESS, Repair.State.FAILED])
def test_a_node_that_is_back_is_no_longer_said_to_be_lost(
    served: Served, browser: Client, ended: Repair.State
) -> None:
    served.coordinator.report(lost_nodes={served.name: ENDED}, nodes=traffic(served, ready=False))
    Repair.objects.create(
        deployment=served.deployment, state=ended, lost=[served.name], noticed_at=timezone.now()
    )
    assert f"Lost: {served.name};" in state(browser, served)
    served.coordinator.report(nodes=traffic(served, ready=True))
    assert served.status == (Status.READY, "")
    assert "Lost:" not in state(browser, served)


def traffic(served: Served, *, ready: bool) -> dict[str, NodeTraffic]:
    return {
        name: HEARD.model_copy(update={"ready": ready or name != served.name})
        for name in served.used_agents
    }
