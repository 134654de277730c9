"""The pages of deployments, and how one deployment follows another."""

import json
import re
import shlex
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.deployment.coordinators import curl_command
from helixweb.deployment.models import Deployment, Status
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, denied, fresh, shows, tight
from tests.helixweb.process_doubles import HARDWARE, FakeCluster, make_plan, served

pytestmark = pytest.mark.usefixtures("time_stands_still")


def press_deploy(browser: Client, joined: FakeCluster, **fields: Any) -> Deployment:
    answer = answered(browser.post(f"/deployments/new?plan={joined.plan.pk}", fields), 302)
    deployment = Deployment.unscoped.latest("pk")
    assert answer["Location"] == f"/deployments/{deployment.pk}/"
    return deployment


def test_superseded_nodes_are_called_ended_in_chinese(browser: Client, joined: FakeCluster) -> None:
    first = joined.deploy()
    joined.deploy()
    browser.cookies["language"] = "zh-hans"
    rows = tight(browser.get(f"/deployments/{first.pk}/").content.decode())
    assert ">已结束</span>" in rows
    assert ">ended</span>" not in rows


def test_a_plan_says_why_it_cannot_be_deployed_yet(browser: Client, joined: FakeCluster) -> None:
    joined.silence("tower")
    button = render_to_string("deployment/_deploy_button.html", {"plan": joined.plan})
    assert "Node tower is silent; start its agent again." in button
    assert "<button" not in button
    denied(browser.post(f"/deployments/new?plan={joined.plan.pk}"), 422, "Node tower is silent")


def test_the_deploy_button_names_what_it_replaces(browser: Client, joined: FakeCluster) -> None:
    button = render_to_string("deployment/_deploy_button.html", {"plan": joined.plan})
    assert "Deploy this plan" in button
    assert "max_batch_tokens" not in button, "it follows nothing"
    page = browser.get(f"/deployments/new?plan={joined.plan.pk}").content.decode()
    assert "Options are those of" not in page
    deployment = press_deploy(browser, joined)
    assert (deployment.page_tokens, deployment.kv_high_water) == (16, 0.9)
    assert deployment.max_context_tokens == joined.model.max_context_tokens
    assert deployment.created_by is not None
    shows(browser.get("/deployments/"), "tiny-llama", "deploying")
    button = render_to_string("deployment/_deploy_button.html", {"plan": joined.plan})
    assert f"It takes the place of deployment {deployment.pk}" in button


def test_what_follows_takes_over_shared_options(browser: Client, joined: FakeCluster) -> None:
    press_deploy(browser, joined, max_batch_tokens="128", max_queued_requests="7")
    button = render_to_string("deployment/_deploy_button.html", {"plan": joined.plan})
    sent = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', button))
    sent.pop("csrfmiddlewaretoken", None)
    page = browser.get(f"/deployments/new?plan={joined.plan.pk}").content.decode()
    contains(page, 'value="128"', "it serves on meanwhile only beside the same tokens in a step")
    second = press_deploy(browser, joined, **sent)
    assert (second.max_batch_tokens, second.max_queued_requests) == (128, 7)
    assert second.follows_generation == 1


def test_pressing_twice_or_after_another_deploys_once(browser: Client, joined: FakeCluster) -> None:
    form = f"/deployments/new?plan={joined.plan.pk}"
    shows(browser.get(form), 'name="seen_generation" value="0"')
    first = press_deploy(browser, joined, seen_generation="0")
    again = answered(browser.post(form, {"seen_generation": "0", "page_tokens": "32"}), 422)
    shown = again.content.decode()
    contains(shown, f"deployment {first.pk} of tiny-llama is deploying", 'value="32"')
    assert 'name="seen_generation" value="1"' in shown, "pressed again, it means this one"
    assert Deployment.unscoped.get() == first


def test_the_page_shows_the_progress_of_every_node(browser: Client, joined: FakeCluster) -> None:
    deployment = press_deploy(browser, joined)
    joined.agents["tower"].beat(
        Phase.LOADING, generation=1, message="<b>half</b> read", loaded_ratio=0.5
    )
    joined.agents["laptop"].beat(Phase.FAILED, generation=1, message="out of memory; add some")
    weights = joined.fetch_some("mini")
    page = tight(browser.get(f"/deployments/{deployment.pk}/").content.decode())
    cluster = joined.cluster.pk
    topics = f"deployment:{deployment.pk},cluster:{cluster},metrics:{cluster}"
    assert f'data-topics="{topics}"' in page
    assert 'value="0.500"' in page
    assert "&lt;b&gt;half&lt;/b&gt; read" in page
    assert "laptop: out of memory; add some" in page
    assert "Fetched 1.5 GB of 4 GB, 1 GB from node laptop, 500 MB from the hub" in page
    assert "about 2 min left" in page
    node = joined.agents["mini"].row
    shows(browser.get(f"/clusters/{joined.cluster.pk}/nodes/{node.pk}/"), "Fetched 1.5 GB of 4 GB")
    joined.agents["mini"].beat(Phase.READY, generation=1, weights=weights)
    later = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    assert "about 2 min left" not in later
    contains(page, "http://127.0.0.1:8100/v1/chat/completions", "YOUR_KEY")
    assert 'style="' not in page, "the content security policy would block it"


def test_stop_ends_it_once_the_nodes_are_idle(browser: Client, joined: FakeCluster) -> None:
    deployment = press_deploy(browser, joined)
    answer = browser.post(f"/deployments/{deployment.pk}/stop")
    assert answer["Location"] == f"/deployments/{deployment.pk}/"
    for agent in joined.used_agents.values():
        agent.beat(Phase.IDLE, generation=2)
    assert fresh(deployment).status == Status.STOPPED
    browser.post(f"/deployments/{deployment.pk}/stop")
    page = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    assert "only one that is deploying, ready, degraded or failed can be stopped" in page
    assert "This deployment has ended" in page


def test_the_curl_command_takes_any_name_of_a_model(browser: Client, joined: FakeCluster) -> None:
    joined.model.name = 'it\'s "big" $(reboot)'
    joined.model.save()
    deployment = press_deploy(browser, joined)
    words = shlex.split(curl_command(deployment, "http://host:8100/v1").replace("\\\n", ""))
    assert words[2] == "http://host:8100/v1/chat/completions"
    assert json.loads(words[-1])["model"] == joined.model.name


def test_a_revision_can_be_deployed_again_as_it_was(browser: Client, joined: FakeCluster) -> None:
    first = press_deploy(browser, joined, page_tokens="32", tensor_parallel_by_node="tower=1")
    joined.plan = make_plan(joined.cluster)
    second = press_deploy(browser, joined)
    page = browser.get(f"/deployments/{second.pk}/").content.decode()
    again = f"/deployments/new?plan={first.plan_id}&again={first.pk}"
    assert again.replace("&", "&amp;") in page
    assert f"/plans/compare?plan={first.plan_id}&amp;plan={second.plan_id}" in page
    shows(browser.get(again), 'value="32"', 'value="tower=1"')


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


def test_it_has_taken_over_when_nothing_is_left(joined: FakeCluster, api: APIClient) -> None:
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


def test_the_api_rolls_back_past_what_never_served(joined: FakeCluster, api: APIClient) -> None:
    first = joined.deploy()
    denied(api.post(f"/api/v1/deployments/{first.pk}/roll-back/"), 409, "deploy another plan")
    joined.ready()
    joined.deploy(max_queued_requests=1)  # never ready
    third = joined.deploy(max_queued_requests=2)
    answer = answered(api.post(f"/api/v1/deployments/{third.pk}/roll-back/"), 202)
    assert answer.json()["max_queued_requests"] == first.max_queued_requests
    assert answer["Location"].endswith(f"/api/v1/deployments/{answer.json()['id']}/")


MARK = "emulated</span>"


def emulate(joined: FakeCluster) -> str:
    """One node of the plan turns out to be emulated; its name."""
    name, agent = next(iter(joined.used_agents.items()))
    agent.identity["hardware"] = {**HARDWARE, "emulated": True}
    agent.move(str(agent.identity["data_endpoint"]))
    return name


def test_emulated_deployments_say_so(joined: FakeCluster, api: APIClient, browser: Client) -> None:
    deployment = served(joined)
    own = f"/deployments/{deployment.pk}/"
    pages = (own, "/deployments/", "/", f"/monitor/?cluster={joined.cluster.pk}")
    for address in (*pages, "/playground/"):
        assert "emulated" not in browser.get(address).content.decode(), address
    assert api.get(f"/api/v1{own}").json()["emulated"] is False
    plan = joined.coordinator.plan
    assert not plan.emulated
    name = emulate(joined)
    assert (fresh(deployment).generation, deployment.emulated) == (2, True)
    joined.ready(generation=2)
    shown = api.get(f"/api/v1{own}").json()
    assert shown["emulated"] is True
    assert {row["node_name"]: row["emulated"] for row in shown["assignments"]} == (
        dict.fromkeys(joined.used_agents, False) | {name: True}
    )
    plan = joined.coordinator.plan
    assert plan.emulated
    page = browser.get(own).content.decode()
    assert page.count(MARK) == 2  # beside the status, and beside the node
    assert "Nodes of this deployment run no model" in page
    for address in pages:
        assert MARK in browser.get(address).content.decode(), address
    assert "(emulated)</option>" in tight(browser.get("/playground/").content.decode())
