"""Every action of every page in a real browser, once at a desk in the light, once on a phone in the
dark: buttons that no step presses, and addresses that none opens, are found and named.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver

from tests.e2e.browsed_site import BrowsedSite
from tests.e2e.inventory_actions import (
    act_in_settings,
    act_on_clusters,
    act_on_models_and_profiles,
    act_on_nodes,
    act_on_the_network,
    find_profiles_out,
    take_the_serving_cluster_down,
)
from tests.e2e.pages import FOR_PEOPLE, names_of
from tests.e2e.person import Person, look_like
from tests.e2e.planning_actions import act_on_alerts, act_on_plans
from tests.e2e.serving_actions import act_on_what_serves
from tests.e2e.site_world import PASSWORD
from tests.helixweb.chat_double import ChatDouble
from tests.waiting import PATIENCE_S

LAST = "post /logout/: Log out"  # pressed after the record was read, which ends with the session
RECORDER = Path(__file__).with_name("record_controls.js").read_text()

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "width", "theme"), [("desk", 1280, "light"), ("phone", 390, "dark")]
)
def test_every_action_does_what_it_says(
    browsed_site: BrowsedSite, browser: webdriver.Chrome, name: str, width: int, theme: str
) -> None:
    person = Person(browser, browsed_site.url)
    look_like(browser, width, theme)
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORDER})
    with ChatDouble("Layers ", "on ", "nodes.") as chat:
        world = browsed_site.make_world(name, chat_url=chat.url)
        go_in(person, world)
        act_in_settings(person, world, theme)
        act_on_clusters(person, world)
        act_on_nodes(person, world)
        act_on_the_network(person, world)
        act_on_models_and_profiles(person, world)
        act_on_plans(person, world)
        act_on_what_serves(person, world, chat)
        act_on_alerts(person, world)
        find_profiles_out(person, world)
        take_the_serving_cluster_down(person, world)
    recorded = json.loads(browser.execute_script("return localStorage['controls-of-the-site']"))
    followed = follow_other_links(person, recorded)
    person.click("Log out")
    person.see("h1", "Log in")
    assert person.script_errors() == []
    recorded["used"][LAST] = 1
    unused = set(recorded["controls"]) - set(recorded["used"])
    assert unused == set()
    pressed = [key for key in recorded["used"] if key.startswith(("get /", "post /"))]
    keys = [*recorded["pages"], *pressed, *recorded["asked"], *followed]
    assert FOR_PEOPLE - opened(keys) == set()


def go_in(person: Person, world: dict[str, Any]) -> None:
    """By the one-time link, which is good once; then by the password."""
    link = f"/login/link/{world['login_link']}/"
    person.open(link)
    person.click("Log in")
    person.see("h1", "Overview")
    person.click("Getting to the first token: done")
    person.open(link)
    person.click("Log in")
    person.see("h1", "This link no longer works")
    person.script_errors()  # the refusal, 403, is an error to the browser
    person.browser.delete_all_cookies()
    person.open("/models/")
    for password in ("wrong", PASSWORD):
        person.fill("username", world["user"], within="form")
        person.fill("password", password, within="form")
        person.click("Log in")
        if password == "wrong":
            person.see("[role=alert]", "correct")
    person.see("h1", "Models")


def follow_other_links(person: Person, recorded: dict[str, Any]) -> list[str]:
    """Each kind of link that was seen and not followed leads somewhere; all kinds."""
    cookies = {cookie["name"]: cookie["value"] for cookie in person.browser.get_cookies()}
    with httpx.Client(base_url=person.base_url, cookies=cookies, timeout=PATIENCE_S) as client:
        others = {
            key: recorded["links"][key] for key in recorded["links"] if key not in recorded["pages"]
        }
        answers = {key: client.get(address) for key, address in others.items()}
    assert {key: answer.url for key, answer in answers.items() if not answer.is_success} == {}
    return list(others)


def opened(keys: list[str]) -> set[str]:
    """Names of the addresses that keys of the record stand for."""
    paths = (next(word.rstrip(":") for word in key.split() if word.startswith("/")) for key in keys)
    return names_of(path.replace("/HEX/", f"/{0:016x}/").replace("N", "1") for path in paths)
