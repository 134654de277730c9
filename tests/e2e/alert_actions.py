"""Every action of the pages of alerts, as a person does it."""

from typing import Any

from tests.e2e.person import Person

World = dict[str, Any]


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
    person.click("Acknowledge slow-answers: TTFT")
    person.see("[role=status].note-box", "Noted that you look after")
    person.see("#alerts", f"{world['user']} looks after it.")


def silence(person: Person, world: World) -> None:
    person.open("/alerts/")
    person.click("Silence slow-answers: TTFT")
    person.see("h1", "Silence alerts of")
    person.fill("comment", "known")
    person.click("Silence", within="main form")
    person.see("main tbody", "known")
    person.click("End", within="main tbody")
    person.see("[role=status].note-box", "Notifications are sent again.")


def rules(person: Person, world: World) -> None:
    cluster, name = world["spare"], world["name"]
    fields = {"name": f"{name} rule", "threshold": "9", "clears_at": "8"}
    person.submit(f"/alerts/rules/new/{cluster}", fields, "Add")
    person.see("h1", "Alert rules")
    person.pick("cluster", str(cluster))
    person.filter()
    person.click_under("All rows", f"{name} rule")
    person.fill("threshold", "7")
    person.click("Save")
    person.see(".errorlist", "which is past its threshold of 7")
    person.script_errors()  # the refusal, 422, is an error to the browser
    person.fill("clears_at", "6")
    person.click("Save")
    person.see("h1", "Alert rules")
    person.open(f"/alerts/rules/?cluster={cluster}")
    person.click_under("All rows", f"Delete {name} rule")
    person.click("Delete alert rule", within="main form")
    person.see("[role=status].note-box", f"{name} rule is deleted.")


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
    person.fill("alive_every_s", "3600")
    person.click("Save")
    person.see("h1", "Channels")
    person.click(f"Test {name}")
    person.see("[role=status].note-box", f"A test is on its way to {name}.")
    person.open("/alerts/deliveries/")
    person.pick("channel", str(world["alert_channel"]))
    person.filter()
    person.see("main tbody", "the receiver answered 500")
    person.click("Send again")
    person.see("[role=status].note-box", "It is sent again.")
    person.open("/alerts/channels/")
    person.click(f"Delete {name}")
    person.click("Delete channel", within="main form")
    person.see("[role=status].note-box", f"{name} is deleted.")
