"""Someone at a browser: clicks what is visible, waits for what must appear.

What is looked for is looked for by one small script a look: the driver's own commands for texts and
visibility send tens of kilobytes of script each time, which costs more than the pages.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    JavascriptException,
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.waiting import PATIENCE_S

T = TypeVar("T")
NOT_YET = (
    StaleElementReferenceException,
    ElementNotInteractableException,
    ElementClickInterceptedException,
    JavascriptException,  # the page went away under the script
    NoSuchElementException,
)
FIND = "return document.querySelector(arguments[0])"
TEXT = "return document.querySelector(arguments[0])?.innerText ?? ''"
# The first visible button, link or summary with these words on it, or of this name.
NAMED = """
const [words, within] = arguments;
const plain = (text) => (text ?? "").replace(/\\s+/g, " ").trim();
const isMeant = (element) => element.checkVisibility({ visibilityProperty: true })
  && (plain(element.textContent) === words || element.getAttribute("aria-label") === words);
const place = document.querySelector(within);
return [...(place?.querySelectorAll("button, a, summary") ?? [])].find(isMeant) ?? null;
"""
# Before a click: brings it into sight, and has the page say if a link or a form then leaves it. In
# between this one could still be seen and clicked, with words that may be the same.
TO_THE_MIDDLE = """
arguments[0].scrollIntoView({ block: "center", inline: "center" });
if (window.leaving === undefined) {
  const say = (event, leaves) => { window.leaving ||= leaves && !event.defaultPrevented; };
  addEventListener("submit", (event) => {
    say(event, event.target.getAttribute("method") !== "dialog");
  });
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link || link.target || link.hasAttribute("download")) return;
    const [here, there] = [location, link].map(({ href }) => href.split("#")[0]);
    say(event, here !== there || !link.hash);
  });
}
window.leaving = false;
"""
ARRIVED = "return !window.leaving && document.readyState === 'complete'"
# What a button that copies says stands there for a moment only.
HEAR_OF_COPIES = """
window.heardOfCopies = [];
new MutationObserver((changes) => {
  const buttons = changes.map(({ target }) => target).filter((one) => one.matches?.("[data-copy]"));
  window.heardOfCopies.push(...buttons.map(({ textContent }) => textContent));
}).observe(document.body, { childList: true, subtree: true });
"""
EMPTIED = """
const field = document.querySelector(arguments[0]);
if (field) { field.value = ""; field.focus(); }
return field;
"""


class Person:
    """Drives one browser on one site; `clicks` counts."""

    def __init__(self, browser: webdriver.Chrome, base_url: str) -> None:
        self.browser = browser
        self.base_url = base_url
        self.clicks = 0

    def open(self, path: str) -> None:
        self.browser.get(f"{self.base_url}{path}")

    def find(self, css: str) -> WebElement:
        found: WebElement = self.until(lambda: self.look(FIND, css))
        return found

    def text(self, css: str) -> str:
        """What stands there, as soon as something does."""
        words: str = self.until(lambda: self.look(TEXT, css))
        return words

    def see(self, css: str, words: str) -> None:
        """Wait until these words stand there."""
        self.until(lambda: words in self.look(TEXT, css))

    def look(self, script: str, *arguments: object) -> Any:
        """What a script finds now."""
        return self.browser.execute_script(script, *arguments)

    def click(self, words: str, *, within: str = "body") -> None:
        """The visible button, link or summary with these words on it, by a real click; where that
        leads to another page, it is there afterwards."""
        self.until(lambda: self._click(self.look(NAMED, words, within)))

    def click_under(self, summary: str, words: str, *, within: str = "body") -> None:
        """What is seen once `summary` is unfolded: again, where another part was put in the place
        of the one that was unfolded."""

        def clicked() -> bool:
            if self.look(NAMED, words, within) is None:
                self._click(self.look(NAMED, summary, within))
            return self._click(self.look(NAMED, words, within))

        self.until(clicked)

    def unfold(self, summary: str, *, within: str, css: str, words: str) -> None:
        """Until these words stand there: again, as with `click_under`."""

        def shows() -> bool:
            if words not in self.look(TEXT, css):
                self._click(self.look(NAMED, summary, within))
            return words in self.look(TEXT, css)

        self.until(shows)

    def copy(self, *, within: str = "body") -> None:
        """Press the button, and have it say that it has copied."""

        def pressed() -> bool:
            button = self.look(NAMED, "Copy", within)
            self.look(HEAR_OF_COPIES)
            return self._click(button)

        self.until(pressed)
        self.until(lambda: "Copied" in self.look("return window.heardOfCopies"))

    def filter(self) -> None:
        """Press the button, and wait until the page is another one."""
        before = self.browser.current_url
        self.click("Filter", within="main")
        self.until(lambda: self.browser.current_url != before)

    def tap(self, css: str) -> None:
        """Whatever is there, by a real click."""
        self.until(lambda: self._click(self.look(FIND, css)))

    def _click(self, element: WebElement | None) -> bool:
        if element is None:
            return False
        self.look(TO_THE_MIDDLE, element)
        element.click()
        self.clicks += 1
        self.until(lambda: self.look(ARRIVED))
        return True

    def fill(self, name: str, text: str, *, within: str = "main") -> None:
        self.until(lambda: self._type(f"{within} [name={name}]", text))

    def _type(self, css: str, text: str) -> bool:
        """Anew from an empty field where one is put in another's place under the hands."""
        field: WebElement | None = self.look(EMPTIED, css)
        if field is None:
            return False
        field.send_keys(text)
        return True

    def paste(self, name: str, text: str) -> None:
        """As from the clipboard: too long to type."""
        self.look("arguments[0].value = arguments[1]", self.find(f"[name={name}]"), text)

    def choose(self, name: str, label: str) -> None:
        self._select(name, lambda select: select.select_by_visible_text(label))

    def pick(self, name: str, value: str, *, within: str = "main") -> None:
        """An option by its value, whatever it is called."""
        self._select(name, lambda select: select.select_by_value(value), within=within)

    def _select(self, name: str, take: Callable[[Select], None], *, within: str = "main") -> None:
        def taken() -> bool:
            field: WebElement | None = self.look(FIND, f"{within} [name={name}]")
            if field is None:
                return False
            take(Select(field))
            return True

        self.until(taken)

    def submit(self, path: str, fields: Mapping[str, str], button: str) -> None:
        """Open a form, fill in its fields, and press its button."""
        self.open(path)
        for name, text in fields.items():
            if self.find(f"main [name={name}]").tag_name == "select":
                self.choose(name, text)
            else:
                self.fill(name, text)
        self.click(button, within="main")

    def press(self, button: str, *, note: str, within: str = "body") -> None:
        """Click, and wait until the page says that it is done."""
        self.click(button, within=within)
        self.see("[role=status].note-box", note)

    def send(self, button: str, **fields: str) -> None:
        """Fill in these fields of the form that is open, and press its button."""
        for name, text in fields.items():
            self.fill(name, text)
        self.click(button)

    def see_refusal(self, words: str) -> None:
        """What the form says of what was sent; the 422 is an error to the browser."""
        self.see(".errorlist", words)
        self.script_errors()

    def until(self, condition: Callable[[], T | None]) -> T:
        """What `condition` gives once it is neither empty nor gone from under us."""
        waiting = WebDriverWait(
            self.browser, PATIENCE_S, poll_frequency=0.2, ignored_exceptions=NOT_YET
        )
        try:
            return waiting.until(lambda _: condition())
        except TimeoutException:
            page = self.look(TEXT, "body")
            pytest.fail(f"waited {PATIENCE_S} s in vain at {self.browser.current_url}:\n{page}")

    def script_errors(self) -> list[str]:
        """What the console had to say since the last call."""
        lines = self.browser.get_log("browser")
        return [line["message"] for line in lines if line["level"] == "SEVERE"]


def look_like(browser: webdriver.Chrome, width: int, theme: str) -> None:
    """A window of that width in that theme, drawn."""
    be_wide(browser, width)
    browser.execute_async_script(
        "document.documentElement.dataset.theme = arguments[0];"
        "document.dispatchEvent(new CustomEvent('helix-theme'));"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
        theme,
    )


def be_wide(browser: webdriver.Chrome, width: int) -> None:
    """Narrow windows are of a phone."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
