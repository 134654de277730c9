"""Every page in a real browser, on a desk and on a phone, light and dark: nothing is out of reach.

axe-core (tests/assets, Mozilla Public License 2.0) says what assistive technology would stumble
over; it is a tool of the tests and no part of the package. HELIX_SCREENSHOTS names a folder in
which a picture of each page in each look is kept.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.e2e.browsed_site import BrowsedSite
from tests.e2e.chromium import picture_of_page
from tests.e2e.pages import ANSWERS, EMPTY, FOR_PEOPLE, LARGE, PAGES, names_of
from tests.e2e.person import Person, be_wide, look_like
from tests.waiting import PATIENCE_S

AXE = (Path(__file__).parents[1] / "assets" / "axe.min.js").read_text()
# Before anybody is known.
MISSING = "/nowhere/"  # to the browser that is an error
BARE = ("/login/", "/login/link/used-already/", MISSING)
# Among the pages' names, the present one is not pushed out of the window.
PRESENT_IN_SIGHT = """
const link = document.querySelector(".nav [aria-current]")?.getBoundingClientRect();
return !link || link.left >= 0 && link.right <= innerWidth;
"""
# What can be pressed stands where it is seen, or where something is scrolled to show it.
CUT = """
const isCut = (element) => {
  const { right } = element.getBoundingClientRect();
  for (let around = element.parentElement; around; around = around.parentElement) {
    const way = getComputedStyle(around).overflowX;
    if (way === "auto" || way === "scroll") return false;
    if (way !== "visible" && right > around.getBoundingClientRect().right + 1) return true;
  }
  return false;
};
return [...document.querySelectorAll("main :is(a, button, input, select, summary)")]
  .filter((element) => element.checkVisibility({ visibilityProperty: true }) && isCut(element))
  .map((element) => `cut off: ${element.outerHTML.slice(0, 120)}`).slice(0, 3);
"""
# All rules in two looks, which differ in width and theme. In the others, which `make soak` adds,
# those that ask for colours, where there are charts: everything else takes its colours from the
# theme alone, at any width.
PICTURES = os.environ.get("HELIX_SCREENSHOTS", "")
COLOURS = ("color-contrast", "link-in-text-block")
Look = tuple[str, int, str, tuple[str, ...]]
DESK: Look = ("desk-light", 1280, "light", ())
LOOKS: tuple[Look, ...] = (DESK, ("phone-dark", 390, "dark", ()))
OTHER_LOOKS: tuple[Look, ...] = (
    ("desk-dark", 1280, "dark", COLOURS),
    ("phone-light", 390, "light", COLOURS),
)

# How far one has to scroll on a phone, with what is folded folded.
LONGEST_ON_PHONE_PX = 3000

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def browser(browser: webdriver.Chrome) -> webdriver.Chrome:
    """With axe in each page."""
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": AXE})
    return browser


@pytest.mark.parametrize(
    ("name", "looks", "in_turn"),
    [
        ("walk", LOOKS, True),
        pytest.param("whole", LOOKS, False, marks=pytest.mark.long),
        pytest.param("other", OTHER_LOOKS, False, marks=pytest.mark.long),
    ],
    ids=["light desk, dark phone in turn", "light desk and dark phone", "the other way round"],
)
def test_every_page_is_within_reach_of_everybody(
    browsed_site: BrowsedSite,
    browser: webdriver.Chrome,
    name: str,
    looks: Sequence[Look],
    in_turn: bool,
) -> None:
    """Each page takes each look; with `in_turn` axe, which is what costs, sees it in one."""
    person = Person(browser, browsed_site.url)
    world = browsed_site.make_world(name, chat_url="http://127.0.0.1:9", large=True)
    assert [path for path, _ in problems(person, BARE, looks, name="bare")] == [MISSING]
    log_in(person, f"{browsed_site.url}/login/link/{world['login_link']}/")
    pages = [page.format(**world) for page in (*PAGES, *LARGE)]
    for run in ("run", "large_run"):
        person.open(f"/plans/{world[run]}/")
        person.until(lambda: person.browser.find_elements("css selector", "#simulated-busy"))
        person.until(lambda: person.browser.find_elements("css selector", "#marginal-values"))
    assert dict(problems(person, pages, looks, name="full", in_turn=in_turn)) == {}
    opened = names_of(path.split("?")[0] for path in (*pages, *BARE) if path != MISSING)
    assert FOR_PEOPLE - ANSWERS - opened == set()


def test_every_page_of_a_new_site_says_what_to_do_next(
    tmp_path: Path, browser: webdriver.Chrome, blank_sqlite: Path
) -> None:
    with BrowsedSite.started(tmp_path, blank_sqlite) as site:
        person = Person(browser, site.url)
        log_in(person, site.login_link())
        found: list[tuple[str, list[str]]] = []
        for path in EMPTY:
            found += problems(person, [path], LOOKS, name="empty")
            if path not in ("/", "/changes/"):  # the latter lists the log-in
                assert person.text("main .empty"), path
        assert dict(found) == {}


def log_in(person: Person, link: str) -> None:
    person.browser.get(link)
    person.click("Log in")
    person.see("h1", "Overview")


def problems(
    person: Person,
    paths: Sequence[str],
    looks: Sequence[Look],
    *,
    name: str,
    in_turn: bool = False,
) -> Iterator[tuple[str, list[str]]]:
    """Pages that axe, the window's size, or the console have something against, in each look.

    A page is loaded once, on a light desk, and changes its look as when the window is resized and
    the theme switched. With `in_turn` axe sees each page in one look, the next page in the next.
    """
    browser = person.browser
    browser.get_log("browser")
    for number, path in enumerate(paths):
        be_wide(browser, DESK[1])
        person.open(path)
        WebDriverWait(browser, PATIENCE_S).until(
            lambda driver: driver.execute_script(
                "return document.readyState === 'complete' && "
                "!document.querySelector('[aria-busy=true]') && "
                "[...document.querySelectorAll('[data-figure-json]')]"
                ".filter((chart) => chart.checkVisibility())"
                ".every((chart) => chart.classList.contains('js-plotly-plot'))"
            )
        )
        has_charts = bool(browser.find_elements(By.CSS_SELECTOR, ".chart"))
        for turn, (look, width, theme, rules) in enumerate(looks, start=number):
            if rules and not has_charts and not PICTURES:
                continue
            if look != DESK[0]:
                look_like(browser, width, theme)
            is_seen = not in_turn or turn % len(looks) == 0
            said = violations(browser, rules=rules) if is_seen else []
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            said += [f"{wide} px wide in a window of {width}"] if wide > width else []
            long = browser.execute_script("return document.documentElement.scrollHeight")
            said += [f"{long} px long"] if width < 500 and long > LONGEST_ON_PHONE_PX else []
            said += [] if browser.execute_script(PRESENT_IN_SIGHT) else ["the page's name is aside"]
            said += browser.execute_script(CUT)
            if said:
                yield f"{path} on {look}", said
            keep_picture(browser, f"{name}{re.sub(r'[^a-z0-9]+', '-', path)}-{look}")
        if errors := person.script_errors():
            yield path, errors


def keep_picture(browser: webdriver.Chrome, name: str) -> None:
    """Of the whole page, where somebody asked for pictures."""
    if PICTURES:
        (Path(PICTURES) / f"{name}.webp").write_bytes(picture_of_page(browser))


def violations(browser: webdriver.Chrome, *, rules: tuple[str, ...]) -> list[str]:
    """What axe calls serious or critical, with the first element of each; no rules: all of them."""
    # Without `preload` axe does not fetch styles and media again, which no rule here reads.
    options = {
        "resultTypes": ["violations"],
        "preload": False,
        **({"runOnly": rules} if rules else {}),
    }
    found: list[dict[str, Any]] = browser.execute_async_script(
        "axe.run(document, arguments[0]).then((result) => arguments[1](result.violations))",
        options,
    )
    return [
        f"{rule['id']}: {rule['nodes'][0]['html'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]
