"""Every action of the pages of plans, as a person does it."""

from typing import Any

from tests.e2e.person import Person

World = dict[str, Any]


def act_on_plans(person: Person, world: World) -> None:
    compute_a_plan(person, world)
    go_on_from_a_plan(person, world)
    stop_what_runs(person, world)
    replan(person, world)
    imagine_another_cluster(person, world)
    plan_several_models(person, world)
    compare(person, world)


def compute_a_plan(person: Person, world: World) -> None:
    person.open("/plans/new")
    person.choose("cluster", f"{world['name']}-spare")
    person.choose("model", world["model_name"])
    person.see("#fit", f"{world['model_name']} has 4")
    person.pick("method", "mixed")
    assert person.find("[name=backend]").is_displayed()
    person.pick("method", "pipelines")
    assert not person.find("[name=backend]").is_displayed()
    person.pick("objective", "latency")
    assert person.find("[name=ttft_limit_s]").is_displayed()
    person.pick("objective", "fewest_nodes")
    assert person.find("[name=demand_tokens_per_s]").is_displayed()
    person.pick("objective", "flow")
    assert not person.find("[name=demand_tokens_per_s]").is_displayed()
    person.send("Advanced: how to search, and rules for every placement", time_limit_s="1")
    person.pick("pinned-node", "tower")
    person.fill("pinned-first", "2")
    person.fill("pinned-end", "2")
    person.click("Compute plan")
    person.see("[data-row] .errorlist", "[2, 2)")
    person.script_errors()
    another_row(person, "pinned")
    person.click("Compute plan")
    person.see("#run-state", "finished")
    flow = "#run section:has(#flow)"
    person.unfold("As table", within=flow, css="#flow-table", words="tower")


def another_row(person: Person, name: str) -> str:
    """Removes the first row of a picker, adds one to the others, and says where that one is."""
    rows = f"[data-rows]:has([name^={name}-])"
    person.click("Remove", within=rows)
    count = len(person.browser.find_elements("css selector", f"{rows} [data-row]"))
    person.click("Add a row", within=rows)
    row = f"{rows} [data-row][aria-label='Row {count + 1}']"
    person.find(row)
    assert person.look("return document.activeElement.closest(arguments[0]) !== null", row)
    return row


def go_on_from_a_plan(person: Person, world: World) -> None:
    person.open(f"/plans/{world['run']}/")
    person.click("How the search went")
    person.click("0.7 s")
    person.see("h1", "After 0.7 s")
    person.open(f"/plans/{world['run']}/")
    person.click("Other throughputs of this plan")
    person.see("#throughputs", "No placement on these machines")
    person.click("Layers and compute of every node")
    person.see("#layers-summary", "layers")
    person.fill("search_s", "0", within="#explanation")
    person.click("Search", within="#explanation")
    more, values = "What one more would bring", "#marginal-values"
    person.unfold(more, within="#explanation", css=values, words="+1")
    person.click("Forecast in detail, simulations")
    person.click(
        "Cancel", within=f"#simulation-rows tr:has(#simulation-{world['simulation']}-progress)"
    )
    person.see("#simulation-rows", "cancelling")
    person.click("Simulate again, with another workload, policy or seed")
    person.choose("workload", "Offline: requests always wait")
    person.send("Simulate", seed="7")
    person.see("#simulation-rows", "offline, requests always wait")
    person.fill("seconds", "1", within=".page-head")
    person.click("Search on")
    person.see("#run-state", "goes on from")
    person.see("#run-state", "finished")
    person.click("Compute again")
    person.see("#run-state", "began with")
    person.see("#run-state", "finished")


def stop_what_runs(person: Person, world: World) -> None:
    person.open(f"/plans/{world['running']}/")
    person.click("Accept the best so far")
    person.see("#run-state", "accepting")
    person.open(f"/plans/{world['also_running']}/")
    person.click("Cancel", within=".page-head")
    person.see("#run-state", "cancelling")
    person.open(f"/plans/mixes/{world['mix']}/")
    person.click("Stop with what it has")
    person.see("#mix", "cancelling")


def replan(person: Person, world: World) -> None:
    person.open(f"/plans/{world['replan_run']}/")
    before = person.browser.current_url
    person.click("Make it a plan")
    person.until(lambda: person.browser.current_url != before)  # both say what they are around
    person.see("#run-state", "around plan")
    person.open(f"/plans/by-id/{world['plan']}/replan")
    person.fill("budget_bytes", "0")
    person.send("Advanced: how to search, and rules for every placement", time_limit_s="1")
    row = another_row(person, "max_layers_of")
    person.pick("max_layers_of-node", "laptop", within=row)
    person.fill("max_layers_of-layers", "2", within=row)
    person.click("Replan", within="main")
    person.see("#run-state", "finished")


def imagine_another_cluster(person: Person, world: World) -> None:
    path = f"/plans/by-id/{world['plan']}/what-if"
    person.open(path)
    person.choose("removed", "mini")
    person.fill("time_limit_s", "1")
    person.pick("upgraded-node", "laptop")
    person.pick("upgraded-becomes", "big")
    row = another_row(person, "added")
    person.fill("added-count", "2", within=row)
    person.pick("added-profile", "small", within=row)
    person.pick("added-region", "home", within=row)
    person.click("Estimate")
    person.see("#worth", "Nodes with layers")
    person.click("Estimate and search")
    person.see("#run-state", "what if: without mini, +2 small in home, laptop as big")
    person.see("#run-state", "finished")


def plan_several_models(person: Person, world: World) -> None:
    person.open(f"/clusters/{world['spare']}/")
    person.click("Plan several models")
    person.send("Advanced: how to search, and rules for every placement", time_limit_s="1")
    another_row(person, "max_layers_of")
    person.click("Compute plans")
    person.see("#mix", "finished")


def compare(person: Person, world: World) -> None:
    person.open("/plans/")
    person.choose("cluster", f"{world['name']}-serving")
    person.choose("status", "succeeded")
    person.filter()
    for box in person.browser.find_elements("css selector", "[name=plan]")[:2]:
        person.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
        box.click()
    person.click("Compare the chosen plans")
    person.see("h1", "Compare 2 plans")
    person.click("Compare", within="main")
    person.see("h1", "Compare 2 plans")


def act_on_alerts(person: Person, world: World) -> None:
    look_after_one(person, world)
    silence(person, world)
    rules(person, world)
    channels(person, world)


def look_after_one(person: Person, world: World) -> None:
    person.open("/")
    person.see("#bell", "Alerts that fire:")
    person.tap("#bell a")
    person.see("h1", "Alerts")
    person.choose("state", "firing")
    person.filter()
    person.see("#alerts", "95 of 100 first tokens come within 9 s.")
    person.press("Acknowledge slow-answers: TTFT", note="Noted that you look after")
    person.see("#alerts", f"{world['user']} looks after it.")


def silence(person: Person, world: World) -> None:
    person.open("/alerts/")
    person.click("Silence slow-answers: TTFT")
    person.see("h1", "Silence alerts of")
    person.fill("comment", "known")
    person.click("Silence", within="main form")
    person.see("main tbody", "known")
    person.press("End", note="Notifications are sent again.", within="main tbody")


def rules(person: Person, world: World) -> None:
    cluster, name = world["spare"], world["name"]
    fields = {"name": f"{name} rule", "threshold": "9", "clears_at": "8"}
    person.submit(f"/alerts/rules/new/{cluster}", fields, "Add")
    person.see("h1", "Alert rules")
    person.pick("cluster", str(cluster))
    person.filter()
    person.click_under("All rows", f"{name} rule")
    person.send("Save", threshold="7")
    person.see_refusal("which is past its threshold of 7")
    person.send("Save", clears_at="6")
    person.see("h1", "Alert rules")
    person.open(f"/alerts/rules/?cluster={cluster}")
    person.click_under("All rows", f"Delete {name} rule")
    person.press("Delete alert rule", note=f"{name} rule is deleted.", within="main form")


def channels(person: Person, world: World) -> None:
    cluster, name = world["spare"], f"{world['name']}-hook"
    fields = {"name": name, "url": "http://127.0.0.1:9/other"}
    person.submit(f"/alerts/channels/new/{cluster}", fields, "Add")
    person.see("#new-secret", "whsec_")
    person.copy()
    person.click(f"New secret for {name}")
    person.see("#new-secret", "whsec_")
    person.copy()
    person.click(name)
    person.send("Save", alive_every_s="3600")
    person.see("h1", "Channels")
    person.press(f"Test {name}", note=f"A test is on its way to {name}.")
    person.open("/alerts/deliveries/")
    person.pick("channel", str(world["alert_channel"]))
    person.filter()
    person.see("main tbody", "the receiver answered 500")
    person.press("Send again", note="It is sent again.")
    person.open("/alerts/channels/")
    person.click(f"Delete {name}")
    person.press("Delete channel", note=f"{name} is deleted.", within="main form")
