"""What a person sees and presses on the pages of deployments."""

import json
import re
import shlex
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client

from helixweb.deployment.coordinators import curl_command
from helixweb.deployment.models import Deployment, Status
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, denied, fresh, shows
from tests.helixweb.markup import tight
from tests.helixweb.process_doubles import FakeCluster, make_plan

pytestmark = pytest.mark.usefixtures("time_stands_still")


def press_deploy(browser: Client, joined: FakeCluster, **fields: Any) -> Deployment:
    answer = answered(browser.post(f"/deployments/new?plan={joined.plan.pk}", fields), 302)
    deployment = Deployment.unscoped.latest("pk")
    assert answer["Location"] == f"/deployments/{deployment.pk}/"
    return deployment


def test_a_bad_option_is_shown_beside_its_field_and_what_was_typed_is_kept(
    browser: Client, joined: FakeCluster
) -> None:
    answer = browser.post(
        f"/deployments/new?plan={joined.plan.pk}", {"kv_high_water": "7", "page_tokens": "32"}
    )
    page = answer.content.decode()
    assert answer.status_code == 422
    contains(page, "less than or equal to 1", 'value="32"')
    assert not Deployment.unscoped.exists()


def test_nodes_of_what_was_superseded_are_called_ended_in_chinese(
    browser: Client, joined: FakeCluster
) -> None:
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


def test_a_deployable_plan_offers_the_button_and_names_what_it_would_replace(
    browser: Client, joined: FakeCluster
) -> None:
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


def test_what_follows_is_deployed_with_the_options_of_what_runs_that_both_can_be_served(
    browser: Client, joined: FakeCluster
) -> None:
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


def test_the_page_shows_phase_message_and_progress_of_every_node(
    browser: Client, joined: FakeCluster
) -> None:
    deployment = press_deploy(browser, joined)
    joined.agents["tower"].beat(
        Phase.LOADING, generation=1, message="<b>half</b> read", loaded_ratio=0.5
    )
    joined.agents["laptop"].beat(Phase.FAILED, generation=1, message="out of memory; add some")
    fetch = {
        "needed_bytes": 4_000_000_000,
        "fetched": {"peer laptop": 1_000_000_000, "hub": 500_000_000},
        "source": "hub",
        "eta_s": 130.0,
    }
    joined.agents["mini"].beat(
        Phase.LOADING, generation=1, loaded_ratio=0.1, weights={"port": 9000, "fetch": fetch}
    )
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
    joined.agents["mini"].beat(Phase.READY, generation=1, weights={"port": 9000, "fetch": fetch})
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
