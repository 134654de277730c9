"""`python -m docs.gallery.capture [demo|three-machines]`: take the pictures of the README or of
docs/three-machines.md again. Needs Chromium, and minutes.

`demo` is a site of its own on loopback: the demo cluster of 24 mixed GPUs, whose plan is computed
meanwhile, and the rows that the tests in a browser look at, whose processes are doubles.
`three-machines` is the page's walk in three network namespaces, which need root and iproute2.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from tests.e2e import blank_database
from tests.e2e.browsed_site import BrowsedSite
from tests.e2e.chromium import headless_chromium, picture_of_window
from tests.e2e.person import Person, look_like
from tests.e2e.three_machines import ADDRESSES, CHECKPOINT, Machines
from tests.e2e.walk_by_clicks import chat_model, walk_to_an_answer
from tests.helixweb.chat_double import ChatDouble
from tests.shaped_links.network import cabled

HERE = Path(__file__).resolve().parent
SEARCH_S = 10
DESK, PHONE = 1280, 390
ANSWER = (
    "A placement gives each node the layers it serves best, ", "and the max flow of the graph ",
    "says how many tokens a second they carry together.",
)  # fmt: skip


class Photographer:
    """Takes pictures of what stands at the top of the window."""

    def __init__(self, person: Person, folder: Path) -> None:
        self._person = person
        self._folder = folder

    def take(self, name: str, *, width: int, theme: str, top: str = "body") -> None:
        """Of the window from the element `top` on."""
        browser = self._person.browser
        look_like(browser, width, theme)
        self._person.until(lambda: browser.execute_script(ALL_DRAWN))
        browser.execute_script(
            "scrollTo(0, arguments[0].getBoundingClientRect().top + scrollY - 16)",
            self._person.find(top),
        )
        (self._folder / f"{name}.webp").write_bytes(picture_of_window(browser))


ALL_DRAWN = """
return [...document.querySelectorAll('[data-figure-json]')]
  .filter((chart) => chart.checkVisibility())
  .every((chart) => chart.classList.contains('js-plotly-plot'))
"""


def take_demo(person: Person, site: BrowsedSite, photographer: Photographer) -> None:
    person.browser.get(site.login_link())
    person.click("Log in")
    person.open("/clusters/")
    person.click("Load the demo cluster")
    person.see("#fit", "fits")
    person.fill("time_limit_s", str(SEARCH_S))
    person.click("Compute plan")
    person.see("#run-state", "finished")
    photographer.take("plan", width=DESK, theme="light", top="section:has(#flow)")
    person.open("/clusters/")
    person.click("Demo: 24 mixed GPUs")
    person.click_under("Network, profiles and default workload", "All links")
    photographer.take("network", width=DESK, theme="dark")
    with ChatDouble(*ANSWER) as chat:
        world = site.make_world("lab", chat_url=chat.url)
        person.open(f"/monitor/?cluster={world['cluster']}&range=1h")
        photographer.take("monitor", width=DESK, theme="light", top=".grid")
        person.open(f"/requests/{world['request']}/")
        photographer.take("request", width=DESK, theme="dark")
        person.open(f"/playground/?deployment={world['deployment']}")
        person.find("#prompt").send_keys("What is a placement?")
        person.click("Send")
        person.see("#chat-status", "The answer is complete.")
        photographer.take("playground", width=DESK, theme="light")
        person.open(f"/clusters/{world['cluster']}/nodes/{world['node']}/")
        photographer.take("node-on-a-phone", width=PHONE, theme="dark")


def demo(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as blank,
        tempfile.TemporaryDirectory() as data,
        BrowsedSite.started(Path(data), blank_database.make(Path(blank))) as site,
        headless_chromium() as browser,
    ):
        site.start_worker()
        person = Person(browser, site.url)
        take_demo(person, site, Photographer(person, folder))


def three_machines(folder: Path) -> None:
    """Raises ShapingFailed where there are no network namespaces."""
    model = chat_model()
    with tempfile.TemporaryDirectory() as data, cabled(ADDRESSES) as network, network.inside("a"):
        machines = Machines(Path(data), network, {CHECKPOINT: str(model)})
        try:
            with headless_chromium() as browser:
                person = Person(browser, f"http://{ADDRESSES['a']}:8000")
                look = partial(take_moment, person, Photographer(person, folder))
                walk_to_an_answer(machines, person, look)
        finally:
            machines.end()


def take_moment(person: Person, photographer: Photographer, moment: str) -> None:
    if moment not in MOMENTS:
        return
    name, top = MOMENTS[moment]
    if moment == "joined":
        person.see("#reach", "All 3 processes")
        person.unfold("Matrix", within="#reach", css="#reach", words="From")
    photographer.take(name, width=DESK, theme="light", top=top)


# Of the walk: the picture, and what stands at its top.
MOMENTS = {
    "command": ("three-machines-command", "#join"),
    "joined": ("three-machines-joined", "body"),
    "planned": ("three-machines-plan", "body"),
    "answered": ("three-machines-answer", "body"),
}
WORLDS = {"demo": demo, "three-machines": three_machines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", nargs="?", choices=WORLDS, default="demo")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the pictures go")
    arguments = parser.parse_args()
    WORLDS[arguments.world](arguments.folder)


if __name__ == "__main__":
    main()
