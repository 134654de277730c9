"""Every action of the pages of what serves: playground, requests, monitor, deployments."""

from typing import Any

import httpx
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.e2e.inventory_actions import on_phone, theme_of
from tests.e2e.person import Person
from tests.helixweb.chat_double import ChatDouble
from tests.helixweb.process_doubles import REPORT
from tests.waiting import PATIENCE_S

World = dict[str, Any]
# So that a talk is longer than its place, and whether one sees its end.
LOW = """
const { style } = document.getElementById("messages");
[style.minHeight, style.maxHeight] = ["0", "6rem"];
"""
AT_END = """
const talk = document.getElementById("messages");
return talk.scrollTop > 0 && talk.scrollHeight - talk.scrollTop - talk.clientHeight < 2;
"""
# The time to the first token, and that of the others.
PARTS_IN_SIGHT = """
return [...document.querySelectorAll("#messages .way i")].map((part) => part.checkVisibility());
"""
# A page asks for its timeline by itself: events that would have it ask, too, are kept from it.
WITHOUT_EVENTS = """
for (const type of ["node-phase", "deployment"]) {
  document.addEventListener(`helix:${type}`, (event) => event.stopImmediatePropagation(), true);
}
performance.clearResourceTimings();
"""
TIMELINES_ASKED = """
return performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/timeline/"))
  .length;
"""
DONE_IN_SIGHT = "return document.querySelector('#first-token .done')?.checkVisibility()"
# Also of what is folded away.
CONTENT = "return document.querySelector(arguments[0])?.textContent ?? ''"


def act_on_what_serves(person: Person, world: World, chat: ChatDouble) -> None:
    look_over(person, world)
    talk(person, world, chat)
    look_into_a_request(person, world)
    read_the_log(person, world)
    follow_links(person, world)
    repair(person, world)
    watch_the_timeline_in_chinese(person)
    drain_and_pause(person, world)
    stop_and_deploy(person, world)
    watch(person, world)


def look_over(person: Person, world: World) -> None:
    person.open(f"/?cluster={world['cluster']}")
    steps = "Getting to the first token: done"
    person.unfold(steps, within="main", css="#first-token ol", words="Ask the model")
    person.unfold("Clusters", within="main", css="#overview-clusters", words=world["name"])
    person.click("Last events")
    flow = "main section:has(#flow-load)"
    person.unfold("As table", within=flow, css="#flow-load-table", words="tower")
    with on_phone(person, theme_of(person)):
        person.open(f"/?cluster={world['trouble']}")
        person.see("#first-token", "Deploy")
        assert not person.look(DONE_IN_SIGHT)
        person.click("All steps", within="#first-token")
        person.until(lambda: person.look(DONE_IN_SIGHT))


def talk(person: Person, world: World, chat: ChatDouble) -> None:
    chat.request = world["request"]
    person.open(f"/playground/?deployment={world['deployment']}")
    person.look(LOW)
    person.see("#snippet", "curl")
    person.find("#language").send_keys("Python")
    person.see("#snippet", "from openai import OpenAI")
    person.copy()
    person.find("#prompt").send_keys("Hello", Keys.ENTER)
    person.see("#chat-status", "The answer is complete.")
    assert person.text("#messages .assistant .said") == "".join(chat.words)
    assert "tower [0, 3)" in person.text("#messages .assistant footer")
    assert person.look(PARTS_IN_SIGHT) == [True, True]
    person.tap("#beside")
    Select(person.find("#deployment-2")).select_by_value(str(world["deployment"]))
    person.find("#prompt").send_keys("Once more")
    person.click("Send")
    person.see("#chat-status", "Both answers are complete.")
    person.until(lambda: person.look(AT_END))
    person.tap("#beside")
    chat.hold = True
    person.find("#prompt").send_keys("And now wait")
    person.click("Send")
    person.see("#messages .under-way .said", chat.words[0])
    person.click("Stop")
    person.see("#chat-status", "Stopped.")
    chat.hold = False
    person.click("New chat")
    person.until(lambda: not person.browser.find_elements("css selector", "#messages .message"))
    person.find("#prompt").send_keys("Where did the time go?", Keys.ENTER)
    person.click("Where its time went")
    person.see("h1", f"Request {world['request']}")


def look_into_a_request(person: Person, world: World) -> None:
    person.open(f"/requests/?cluster={world['cluster']}")
    person.choose("outcome", "complete")
    person.filter()
    person.tap("#requests tbody a")
    person.see("h1", "Request")
    person.click("As table, the parts of the end-to-end time")
    person.see("#gantt-table", "tower")


def read_the_log(person: Person, world: World) -> None:
    """By level; and a line that comes while one looks is seen without a touch."""
    person.open(f"/clusters/{world['cluster']}/nodes/{world['node']}/")
    person.see("#log-lines", "is wanted")
    person.see("#live", "Live")
    person.pick("level", "warning")
    person.until(lambda: "is wanted" not in person.look(CONTENT, "#log-lines"))
    person.pick("lines", "50")
    person.see("#log-lines", "RuntimeError")
    line = {"at_s": 1.7e9, "source": "stage", "level": "error", "text": "a wheel came off"}
    answer = httpx.post(
        f"{person.base_url}/api/v1/agent/log",
        json={"lines": [line]},
        headers={"Authorization": world["agent"]},
        timeout=PATIENCE_S,
    )
    assert answer.is_success, answer.text
    person.see("#log-lines", "a wheel came off")


def follow_links(person: Person, world: World) -> None:
    """A link does less than planned: routing follows it or not, the next plan counts with it."""
    source, target = world["slow_link"]
    person.open(f"/clusters/{world['cluster']}/network/")
    person.see("#live-links", f"{source} → {target} is slow")
    person.click("Keep to the plan's weights")
    person.see("#live-links", "even if links are slow")
    person.click("Follow measured links")
    person.until(lambda: "even if links are slow" not in person.look(CONTENT, "#live-links"))
    person.press("Count with measured rates in the next plan", note="1 measured rate counts")


def watch(person: Person, world: World) -> None:
    """A report comes while the page is open: its numbers, words and charts follow."""
    person.open("/monitor/")
    person.choose("cluster", f"{world['name']}-serving")
    if person.find("#choose-cluster button").is_displayed():
        person.click("Show")
    person.see(".page-head", f"{world['name']}-serving serves")
    person.click("1 hour")
    person.see("#live", "Live")
    person.click("As table, newest first")
    person.click("Requests, TPOT, end to end, and all latencies")
    person.click("Flow against the plan, bars of the nodes")
    # Charts of many samples are asked for every 15 s; for this page they have gone by.
    person.browser.execute_script(
        "const now = performance.now.bind(performance); performance.now = () => now() + 16000"
    )
    for css, words in (
        ("[data-live=output]", "123"), ("[data-live=running]", "77"), ("#tokens-table", "123"),
    ):  # fmt: skip
        person.until(
            lambda css=css, words=words: tell(person, world) and words in person.look(CONTENT, css)
        )
    person.until(lambda: tell(person, world) and asked_for(person, "/monitor/chart/heat/"))
    headline = "[data-finding=headline]"
    person.until(
        lambda: tell(person, world) and "Nothing is reported" not in person.look(CONTENT, headline)
    )


def tell(person: Person, world: World) -> bool:
    """As the coordinator does every second: what is not told again is soon shown as unknown."""
    numbers = {"requests_running": 77, "requests_waiting": 3, "output_tokens_per_s": 123.0}
    report = REPORT.model_copy(update=numbers)
    answer = httpx.post(
        f"{person.base_url}/api/v1/coordinator/report",
        json=report.model_dump(mode="json"),
        headers={"Authorization": world["coordinator"]},
        timeout=PATIENCE_S,
    )
    return answer.is_success


def asked_for(person: Person, path: str) -> bool:
    found: bool = person.browser.execute_script(
        "return performance.getEntriesByType('resource').some(({ name }) => "
        "name.includes(arguments[0]))",
        path,
    )
    return found


def repair(person: Person, world: World) -> None:
    """A node was lost, and another placement found: no, and yes."""
    person.open(f"/deployments/{world['frayed']}/")
    person.see("#outage", "Lost: mini;")
    person.click("Leave the layers where they are")
    person.see("#outage", "found and dismissed")
    person.open(f"/deployments/{world['torn']}/")
    person.click("Deploy this placement")
    person.see("#deployment-status", "deploying")


def watch_the_timeline_in_chinese(person: Person) -> None:
    """Bars of a deployment under way grow in every language, whatever its state is called."""
    person.browser.add_cookie({"name": "language", "value": "zh-hans"})
    person.browser.refresh()
    person.see("#deployment-status", "部署中")
    person.look(WITHOUT_EVENTS)
    person.until(lambda: person.look(TIMELINES_ASKED) >= 3)  # one was perhaps under way
    person.browser.delete_cookie("language")


def drain_and_pause(person: Person, world: World) -> None:
    """A node is left free and taken in again, from both pages; new requests wait, and do not."""
    person.open(f"/clusters/{world['cluster']}/nodes/{world['node']}/")
    person.click_under("Drain…", "Drain the node")
    person.see("[data-drain=tower]", "is being drained")
    person.click("Take tower in again")
    person.see("#drain", "Drain…")
    person.open(f"/deployments/{world['deployment']}/")
    person.tap("[aria-label='Drain tower']")
    person.see("[data-drain=tower]", "is being drained")
    person.click("Take tower in again")
    person.until(lambda: not person.browser.find_elements("css selector", "[data-drain]"))
    person.click("Pause")
    person.see("#paused", "To be paused")
    person.click("Resume")
    person.until(lambda: not person.browser.find_elements("css selector", "#paused"))


def stop_and_deploy(person: Person, world: World) -> None:
    person.open(f"/deployments/{world['deployment']}/")
    person.copy()
    person.click_under("Stop…", "Stop the deployment")
    person.see("#deployment-status", "stopping")
    person.open(f"/plans/{world['run']}/")
    person.click("Options…", within="#deploy")
    person.send("Deploy this plan", max_queued_requests="7")
    person.see("#deployment-status", "deploying")
    options = "Options and revisions"
    person.unfold(options, within="main", css="#ran", words="at most 7")
    person.click(f"Roll back to #{world['deployment']}")
    person.see("#deployment-status", "deploying")
    person.unfold(options, within="main", css="#ran", words="at most 64")
