"""Every action of the inventory's pages and of settings, as a person does it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from selenium.webdriver.common.keys import Keys

from tests.e2e.event_reader import log_in
from tests.e2e.person import Person, look_like
from tests.helixweb.conftest import TINY_PROBLEM
from tests.waiting import PATIENCE_S

World = dict[str, Any]
# Marks what the event has the page replace.
EVENT = """
for (const part of document.getElementById("live-part").children) part.dataset.before = "";
document.dispatchEvent(new CustomEvent("helix:node"));
"""


def act_in_settings(person: Person, world: World, theme: str) -> None:
    look_of_pages(person, theme)
    api_keys(person)
    users(person, world)
    groups(person, world)
    log_ins(person)
    person.open("/settings/join-tokens/")
    person.press("Revoke", note="The token is revoked.", within="main tbody")
    person.open("/settings/jobs/")
    person.choose("status", "succeeded")
    person.filter()
    person.see("main tbody", "finished")


def look_of_pages(person: Person, theme: str) -> None:
    """The form of settings and the button on every page say the same; languages and keys."""
    person.open("/settings/")
    person.pick("language", "zh-hans")
    person.tap("main button.primary")
    person.see("h1", "设置")
    person.pick("language", "")
    person.pick("theme", theme)
    person.pick("zone", "Europe/Berlin")
    person.tap("main button.primary")
    person.see("h1", "Settings")
    person.see("main", "Europe/Berlin now")
    person.until(lambda: theme_of(person) == theme)
    person.tap("#theme-toggle")
    person.until(lambda: theme_of(person) == {"light": "dark", "dark": "light"}[theme])
    person.tap("#theme-toggle")
    keys(person)
    menu(person, theme)
    person.open("/settings/")
    person.until(lambda: theme_of(person) == theme)
    person.find("body").send_keys(Keys.TAB)
    skip = person.browser.switch_to.active_element
    assert skip.text == "Skip to content"
    skip.send_keys(Keys.ENTER)
    person.until(lambda: person.browser.current_url.endswith("#content"))


def menu(person: Person, theme: str) -> None:
    """Folded on a phone, in sight at a desk."""
    with on_phone(person, theme):
        assert not person.find("#menu a").is_displayed()
        person.click("☰ Menu")
        assert person.find("#menu a").is_displayed()


@contextmanager
def on_phone(person: Person, theme: str) -> Iterator[None]:
    width = person.browser.execute_script("return innerWidth")
    look_like(person.browser, 390, theme)
    yield
    look_like(person.browser, width, theme)


def keys(person: Person) -> None:
    """The list of keys by its button and by its key; g and a letter open a page."""
    person.click("Shortcuts")
    person.see("#keys", "G, then a letter")
    person.click("Close", within="#keys")
    person.until(lambda: not person.find("#keys").is_displayed())
    person.find("body").send_keys("?")
    person.see("#keys", "Overview")
    person.find("#keys").send_keys(Keys.ESCAPE)
    person.until(lambda: not person.find("#keys").is_displayed())
    person.find("body").send_keys("gm")
    person.see("h1", "Monitor")


def theme_of(person: Person) -> str:
    theme: str = person.browser.execute_script(
        "return getComputedStyle(document.documentElement).colorScheme"
    )
    return theme


def api_keys(person: Person) -> None:
    person.open("/settings/api-keys/")
    person.fill("name", "laptop")
    person.tap("input[value=serve]")
    person.click("Create key")
    person.see_refusal("Choose at least one.")
    person.tap("input[value=serve]")
    person.click("Limits")
    person.send("Create key", requests_per_min="60")
    person.see("#new-key", "hlx_")
    person.see("main tbody", "60 requests a minute")
    person.copy()
    person.click("Revoke laptop")
    person.see("main tbody", "revoked")


def users(person: Person, world: World) -> None:
    guest = f"{world['name']}-guest"
    person.submit("/settings/users/", {"username": guest}, "Make a login link")
    person.see("#login-link", "/login/link/")
    person.copy()
    with httpx.Client(base_url=person.base_url, timeout=PATIENCE_S) as elsewhere:
        log_in(elsewhere, httpx.URL(person.text("#login-link")).path)
    person.click(guest, within="main")
    person.press("Log out everywhere", note=f"{guest} is logged out.")
    person.click("Users", within="main nav")
    person.press(f"Keep out {guest}", note=f"{guest} is logged out")
    person.press(f"Let in {guest}", note=f"{guest} may log in again")
    person.click(guest, within="main")
    person.choose("cluster", f"{world['name']}-spare")
    person.press("Give", note="The role is given.")
    person.press(f"Take back viewer on {world['name']}-spare", note="The role is taken back.")
    person.submit(f"/clusters/{world['spare']}/access/", {"name": guest}, "Give")
    person.see("main tbody", guest)
    person.press(f"Take back viewer of {guest}", note="The role is taken back.")


def groups(person: Person, world: World) -> None:
    """One is made, given a role and other members, and deleted."""
    name, guest = f"{world['name']}-shift", f"{world['name']}-guest"
    person.submit("/settings/groups/", {"name": name, "members": guest}, "Make the group")
    person.see("h1", name)
    person.choose("role", "operator")
    person.click("Give")
    person.see("main tbody", "operator")
    person.press("Take back operator on the whole site", note="The role is taken back.")
    person.send("Save members", members=world["user"])
    person.see("[role=status].note-box", "The members are kept.")
    person.click_under("Delete…", "Delete the group")
    person.see("[role=status].note-box", f"Group {name} is deleted.")


def log_ins(person: Person) -> None:
    """By the link, before by the password: both are one's own."""
    person.open("/settings/sessions/")
    person.see("main tbody", "this one")
    person.tap("main tbody button")
    person.see("[role=status].note-box", "That log-in is ended.")
    person.press("Log out everywhere else", note="You are logged out everywhere else.")


def act_on_clusters(person: Person, world: World) -> None:
    name = world["name"]
    person.open("/clusters/")
    person.click("Load the demo cluster")
    person.see("h1", "New plan")
    person.see("#fit", "fits")
    person.open("/clusters/")
    person.click("Demo: 24 mixed GPUs")
    person.click("Delete", within=".page-head")
    person.press("Delete cluster", note="is deleted.")
    person.click("Import a problem file")
    person.paste("text", "{")
    person.click("Import")
    person.see_refusal("line 1")
    person.paste("text", json.dumps({**TINY_PROBLEM, "name": f"{name}-imported"}))
    person.click("Import")
    person.see("h1", f"{name}-imported")
    person.click("Network, profiles and default workload")
    person.see("#network-card", "directed pairs are connected")
    person.submit("/clusters/new", {"name": f"{name}-new"}, "Create cluster")
    person.see("h1", f"{name}-new")
    join_a_machine(person)
    person.click("Edit", within=".page-head")
    person.send("Save", name=f"{name}-renamed")
    person.see("h1", f"{name}-renamed")
    person.click("Delete", within=".page-head")
    person.press("Delete cluster", note=f"{name}-renamed is deleted.")
    person.open("/changes/")
    person.fill("actor", world["user"])
    person.filter()
    person.see("main tbody", f"{name}-renamed")


def join_a_machine(person: Person) -> None:
    """A command for a node, then one for the coordinator, without leaving the page."""
    person.fill("name", "tower", within="#join")
    person.click("Make a join command")
    person.see("#join-command", "/join.sh | sh -s -- --token")
    person.copy(within="#join")
    person.click("The agent is installed already")
    person.see("#join details", "helix-agent join")
    person.tap("#join input[value=coordinator]")
    person.fill("name", "front", within="#join")
    person.click("Make another command")
    person.see("#join-command", "runtime coordinator")


def act_on_nodes(person: Person, world: World) -> None:
    cluster = f"/clusters/{world['spare']}"
    person.submit(f"{cluster}/nodes/new", {"name": "added", "region": "home"}, "Add node")
    person.see("#nodes", "added")
    person.click("added", within="#nodes")
    person.see("h1", "added")
    person.click("Hardware and memory")
    person.click("Profiles and links")
    person.browser.get(f"{person.browser.current_url}#past")
    person.see("#past section", "It has not held layers yet.")
    person.click("Stages, messages, and changes")
    person.click("Edit", within=".page-head")
    person.send("Save", region="elsewhere")
    person.see("#live-part", "elsewhere")
    person.click("Delete", within=".page-head")
    person.press("Delete node", note="added is deleted.")
    first_nodes(person, world)
    many_nodes(person, world)


def first_nodes(person: Person, world: World) -> None:
    """On a phone a long table is folded; once opened it stays so when the page follows an event."""
    last = "#nodes tbody tr:last-child"
    with on_phone(person, theme_of(person)):
        person.open(f"/clusters/{world['many']}/")
        assert not person.find(last).is_displayed()
        person.click("All rows", within="#live-part")
        assert person.find(last).is_displayed()
        person.look(EVENT)
        person.until(lambda: not person.browser.find_elements("css selector", "[data-before]"))
        assert person.find(last).is_displayed()


def many_nodes(person: Person, world: World) -> None:
    """Filter, sort, turn the page; then change, tag and delete what is chosen."""
    person.open("/nodes/")
    person.choose("cluster", f"{world['name']}-many")
    person.filter()
    person.see(".page-head", "60 nodes of this filter")
    person.click("Region", within="#nodes thead")
    person.click("Next")
    person.see(".pages", "51 to 60")
    person.click("Previous")
    person.tap("[data-choose-all]")
    person.see("[data-chosen]", "50 chosen")
    person.tap("#all")
    person.see("[data-chosen]", "all chosen")
    for action, word in (("Add tag", "rack-7"), ("Set region", "cellar"), ("Remove tag", "rack-7")):
        if action != "Add tag":
            person.tap("#all")
        person.choose("action", action)
        person.send("Apply", word=word)
        person.see("[role=status].note-box", "60 of 60 chosen nodes changed.")
    person.choose("action", "Set profile")
    person.fill("word", "nobody's")
    person.tap("#nodes tbody input")
    person.click("Apply")
    person.see(".note-box.bad", "nobody's")
    person.choose("action", "Delete")
    person.tap("#nodes tbody input")
    person.see("[data-chosen]", "1 chosen")
    person.click("Apply")
    person.see("h1", "Delete 1 node?")
    person.script_errors()
    person.press("Delete 1 node", note="1 node deleted.")
    person.find("body").send_keys("/")
    person.until(lambda: person.browser.switch_to.active_element.get_attribute("id") == "q")


def act_on_the_network(person: Person, world: World) -> None:
    network = f"/clusters/{world['spare']}/network/"
    person.open(network)
    person.click("Latency")
    person.see("main [aria-current=true]", "Latency")
    person.fill("node", "mini", within="#links")
    person.click("Show", within="#links")
    person.see("#links h2", "mini")
    person.click("Add a link")
    fields = {"source": "mini", "target": "tower", "bandwidth_bytes_per_s": "100", "latency_s": "5"}
    person.submit(person.browser.current_url.removeprefix(person.base_url), fields, "Add")
    person.see("#links", "5 ms")
    person.click("Edit mini -> tower")
    person.send("Save", latency_s="7")
    person.see("#links", "7 ms")
    person.click("Delete mini -> tower")
    person.press("Delete link", note="deleted")
    between_regions(person, network)
    shared_bandwidths(person, network)


def between_regions(person: Person, network: str) -> None:
    fields = {"source": "away", "target": "away", "bandwidth_bytes_per_s": "1000", "latency_s": "3"}
    person.submit(network.replace("network/", "region-links/new"), fields, "Add")
    person.see("main", "3 ms")
    person.click("Edit away -> away")
    person.send("Save", latency_s="4")
    person.see("main", "4 ms")
    person.click("Delete away -> away")
    person.press("Delete region link", note="deleted")


def shared_bandwidths(person: Person, network: str) -> None:
    fields = {"name": "cable", "members": "tower\nmini", "bandwidth_bytes_per_s": "800"}
    person.submit(network.replace("network/", "shared-bandwidths/new"), fields, "Add")
    person.see("#shared", "800 Mbit/s")
    person.click("Edit shared bandwidth cable")
    person.send("Save", bandwidth_bytes_per_s="900")
    person.see("#shared", "900 Mbit/s")
    person.click("Delete shared bandwidth cable")
    person.press("Delete shared bandwidth", note="cable is deleted.", within="main form")


def act_on_models_and_profiles(person: Person, world: World) -> None:
    fields = {
        "name": f"{world['name']}-other", "num_layers": "12", "bytes_per_layer": "1e6",
        "activation_bytes_per_token": "512",
    }  # fmt: skip
    person.open("/models/new")
    person.fill("checkpoint", "/models/none")
    person.see("#model-numbers", "/models/none")  # refused while it is typed
    person.click("Numbers and options")
    for name, text in fields.items():
        person.fill(name, text)
    person.click("Create model", within="main")
    person.see("h1", f"{world['name']}-other")
    person.click("Edit", within=".page-head")
    person.send("Save", checkpoint="/models/other")
    person.see("main", "/models/other")
    person.click("Delete", within=".page-head")
    person.press("Delete model", note="is deleted.")
    fields = {
        "model": f"{world['name']}-model", "name": "big", "vram_bytes": "0.01",
        "tokens_per_s": "900 500 300 200 150 120 100 80",
        "kv_capacity_token_layers": "9e3 8e3 7e3 6e3 5e3 4e3 3e3 2e3",
    }  # fmt: skip
    person.submit(f"/clusters/{world['spare']}/profiles/new", fields, "Add profile")
    person.see("h1", f"{world['name']}-spare")
    for name in ("small", "unused"):
        fields |= {"name": name}
        person.submit(f"/clusters/{world['spare']}/profiles/new", fields, "Add profile")
        person.see("main", name)
    person.open(f"/profiles/?cluster={world['spare']}")
    person.choose("model", f"{world['name']}-model")
    person.filter()
    person.see("main", "3 profiles")
    person.click("Delete unused")
    person.press("Delete profile", note="is deleted.")


def find_profiles_out(person: Person, world: World) -> None:
    """By measuring, which may be cancelled, an earlier version, a file, and a data sheet."""
    person.open(f"/clusters/{world['cluster']}/nodes/{world['node']}/")
    person.choose("model", world["model_name"])
    person.click("Measure the node")
    person.see("#profiling", "Measuring it for")
    person.click("Cancel the measurement")
    person.see("#profiling", "cancelled")
    person.open(f"/clusters/{world['cluster']}/")
    person.tap("#measuring [name=again]")
    person.click("Measure all nodes")
    person.see("#measuring", "ordered")
    profile = f"/profiles/{world['profile']}/"
    person.open(profile)
    person.tap("#versions summary")
    person.see("#versions", "Quickest run")
    person.press("Use version 1", note="Plans computed from now on use")
    exported = person.browser.execute_async_script(
        "const [url, done] = arguments; fetch(url).then((answer) => answer.text()).then(done)",
        f"{profile}profile.json",
    )
    person.open("/profiles/import")
    person.choose("cluster", f"{world['name']}-spare")
    person.fill("name", "copied")
    person.paste("text", exported)
    person.press("Import", note="Imported", within="main")
    fields = {"model": f"{world['name']}-model", "gpu": "T4", "name": "sheet"}
    person.submit(f"/clusters/{world['spare']}/profiles/estimate", fields, "Estimate profile")
    person.see("h1", "sheet")


def take_the_serving_cluster_down(person: Person, world: World) -> None:
    """At the end: the coordinator goes, and a model that is deployed stays."""
    person.open(f"/models/{world['model']}/delete")
    person.click("Delete model")
    person.see("[role=alert]", "deployment")
    person.script_errors()
    person.open(f"/clusters/{world['cluster']}/")
    person.tap("#reach summary")
    person.click("remove", within="#live-part")
    person.press("Remove coordinator", note="front is deleted.")
