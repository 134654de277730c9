"""One deployment follows another beside it: what processes are told, how far it is, and back."""

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.deployment.models import Deployment, Status
from tests.helixweb.looking import answered, denied, fresh
from tests.helixweb.process_doubles import FakeCluster, make_plan, served

pytestmark = pytest.mark.usefixtures("time_stands_still")

WAKE_EVENT = "desired"


def follow_without_mini(joined: FakeCluster, **options: Any) -> Deployment:
    """The second deployment, beside the first, which is ready."""
    served(joined)
    joined.plan = make_plan(joined.cluster, without="mini")
    return joined.deploy(**options)


def test_what_ran_before_goes_on_at_nodes_with_and_without_layers(joined: FakeCluster) -> None:
    joined.deploy()
    assert not joined.agents["mini"].desired().continues
    joined.ready()
    joined.plan = make_plan(joined.cluster, without="mini")
    second = joined.deploy()
    assert second.follows_generation == 1
    for name, agent in joined.agents.items():
        state = agent.desired()
        assert (state.generation, state.continues) == (2, True)
        assert (state.assignment is None) == (name == "mini")


@pytest.mark.parametrize("why", ["other pages", "another checkpoint", "a stop"])
def test_nothing_goes_on_beside_what_cannot_be_served_with_it(
    joined: FakeCluster, api: APIClient, why: str
) -> None:
    served(joined)
    if why == "another checkpoint":
        joined.model.checkpoint = "/models/another"
        joined.model.save()
    second = joined.deploy(page_tokens=32 if why == "other pages" else 16)
    if why == "a stop":
        api.post(f"/api/v1/deployments/{second.pk}/stop/")
        assert [agent.desired().continues for agent in joined.agents.values()] == [False] * 3
        second = joined.deploy()
    assert second.follows_generation is None
    assert not joined.agents["tower"].desired().continues


def test_it_has_taken_over_when_the_coordinator_says_that_nothing_is_left(
    joined: FakeCluster, api: APIClient
) -> None:
    second = follow_without_mini(joined)
    Event.objects.filter(type=WAKE_EVENT).delete()
    for unfinished in (
        {"generation": 1},
        {"generation": 2, "serving": False},
        {"generation": 2, "coming_generation": 2, "coming_missing": ("tower",)},
        {"generation": 2, "leaving_generation": 1, "leaving_requests": 3},
        {"generation": 2, "leaving_generation": 1},
    ):
        joined.coordinator.report(**unfinished)
        assert fresh(second).took_over_at is None
    assert joined.agents["mini"].desired().continues
    joined.coordinator.report(generation=2)
    joined.coordinator.report(generation=2)
    said = Event.objects.filter(topic=f"cluster:{joined.cluster.pk}", type="event")
    sentences = [event.data["text"] for event in said]
    assert len([text for text in sentences if "tiny-llama has taken over" in text]) == 1
    assert api.get(f"/api/v1/deployments/{second.pk}/").json()["took_over_at"] is not None
    assert not joined.agents["mini"].desired().continues
    assert joined.agents["tower"].desired().continues, "its stage goes on as it is"
    woken = Event.objects.filter(type=WAKE_EVENT).values_list("topic", flat=True)
    assert list(woken) == [f"agent:{joined.agents['mini'].row.pk}"]


def test_a_report_while_nothing_changes_looks_no_further(joined: FakeCluster) -> None:
    deployment = served(joined)
    before = Event.objects.filter(topic=deployment.topic).count()
    joined.coordinator.report(generation=1)
    assert fresh(deployment).took_over_at is None
    assert Event.objects.filter(topic=deployment.topic).count() == before


def test_the_page_shows_how_far_the_change_is(joined: FakeCluster, browser: Client) -> None:
    second = follow_without_mini(joined)

    def page() -> str:
        return browser.get(f"/deployments/{second.pk}/").content.decode()

    assert 'id="change"' not in page(), "the coordinator has not said anything of it"
    events = Event.objects.filter(topic=second.topic, type="deployment")
    told = events.count()
    joined.coordinator.report(
        generation=2, coming_generation=2, coming_missing=("laptop",), leaving_requests=0
    )
    assert events.count() > told, "open pages look again"
    assert "serves on</strong> until the stages of laptop are up" in page()
    assert '<progress max="2" value="1"' in page()
    joined.coordinator.report(generation=2, leaving_generation=1, leaving_requests=12)
    assert "12 requests still run on what was before" in page()
    joined.coordinator.report(generation=2, leaving_generation=1, leaving_requests=1)
    assert "1 request still runs on what was before" in page()
    joined.coordinator.report(generation=2, leaving_generation=1)
    assert "Nodes drop the layers of what ran before" in page()
    joined.coordinator.report(generation=2)
    assert 'id="change"' not in page()


def test_one_button_brings_back_what_served_before(joined: FakeCluster, browser: Client) -> None:
    first = joined.deploy(max_queued_requests=7)
    assert "roll-back" not in browser.get(f"/deployments/{first.pk}/").content.decode()
    joined.ready()
    joined.plan = make_plan(joined.cluster, without="mini")
    second = joined.deploy()
    assert f"Roll back to #{first.pk}" in browser.get(f"/deployments/{second.pk}/").content.decode()
    answer = browser.post(f"/deployments/{second.pk}/roll-back")
    third = Deployment.unscoped.latest("pk")
    assert answer["Location"] == f"/deployments/{third.pk}/"
    assert (third.plan_id, third.max_queued_requests) == (first.plan_id, 7)
    assert (third.generation, third.follows_generation) == (3, 2)
    assert fresh(second).status == Status.SUPERSEDED
    browser.post(f"/deployments/{second.pk}/roll-back")
    shown = browser.get(f"/deployments/{second.pk}/").content.decode()
    assert "degraded or failed can be stopped or rolled back" in shown
    assert Deployment.unscoped.count() == 3


def test_the_api_rolls_back_past_what_never_served_and_says_when_there_is_nothing(
    joined: FakeCluster, api: APIClient
) -> None:
    first = joined.deploy()
    denied(api.post(f"/api/v1/deployments/{first.pk}/roll-back/"), 409, "deploy another plan")
    joined.ready()
    joined.deploy(max_queued_requests=1)  # never ready
    third = joined.deploy(max_queued_requests=2)
    answer = answered(api.post(f"/api/v1/deployments/{third.pk}/roll-back/"), 202)
    assert answer.json()["max_queued_requests"] == first.max_queued_requests
    assert answer["Location"].endswith(f"/api/v1/deployments/{answer.json()['id']}/")
