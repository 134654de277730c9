"""Parts of pages that fetch themselves find in the answer what they take out of it."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from tests.e2e.pages import PAGES
from tests.helixweb.everything import make_world
from tests.helixweb.looking import answered

pytestmark = pytest.mark.usefixtures("time_stands_still")


class Fetching(HTMLParser):
    """Addresses that elements of a page fetch, and the ids that they select out of the answers."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, set[str]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        selectors = f"{values.get('hx-select', '')},{values.get('hx-select-oob', '')}"
        ids = set(re.findall(r"#([a-z-]+)", selectors))
        if ids and "hx-get" in values:
            self.found.append((values["hx-get"], ids))


def test_every_part_that_fetches_itself_is_in_the_answer(user: Any, browser: Client) -> None:
    world = make_world()
    browser.force_login(user)
    seen: set[str] = set()
    missing: set[tuple[str, str]] = set()
    for page in dict.fromkeys(page.format(**world) for page in PAGES):
        html = answered(browser.get(page), 200).content.decode()
        for address, ids in Fetching(html).found:
            asked = browser.get(address, headers={"HX-Request": "true"})
            part = answered(asked, 200).content.decode()
            missing |= {(address, name) for name in ids if f'id="{name}"' not in part}
            seen |= ids
    assert {"measuring", "live-part", "deployment-state", "overview-now", "nodes-count"} <= seen
    assert missing == set()
