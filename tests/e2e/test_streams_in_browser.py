"""What a page does that is refused its event stream, in a browser, with a site made up for it."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium import webdriver

from tests.answering import QuietHandler, answering
from tests.e2e.person import Person
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
SHELL = ROOT / "static" / "js" / "shell.js"
OF_SCRIPTS = {"drawn"}  # what scripts tell each other
# What parts of pages wait for, in templates and in scripts.
AWAITED = sorted(
    {
        kind
        for source in (*ROOT.glob("templates/**/*.html"), *ROOT.glob("static/js/*.js"))
        for kind in re.findall(r"helix:([a-z-]+)", source.read_text())
    }
    - OF_SCRIPTS
)
COME_AGAIN_S = 20
# Its pauses are noted, and over at once.
PAGE = b"""<!doctype html><html lang="en"><head><title>A page</title><script>
const plain = window.setTimeout;
window.paused = [];
window.setTimeout = (run, ms) => { paused.push(ms); return plain(run, 10); };
window.came = [];
for (const kind of AWAITED) document.addEventListener(`helix:${kind}`, () => came.push(kind));
</script></head><body>
<span id="live" data-live="Live" data-reconnecting="Reconnecting" data-paused="Paused"
  data-too-many="Too many open pages" data-logged-out="Logged out" hidden></span>
<main data-topics="cluster:1"></main><script src="/shell.js"></script></body></html>"""
PAGE = PAGE.replace(b"AWAITED", json.dumps(AWAITED).encode())


class Site(ThreadingHTTPServer):
    """`is_full`: whoever looks has as many streams open as they may."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.is_full = True
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(QuietHandler):
    server: Site

    def do_GET(self) -> None:
        if not self.path.startswith("/events"):
            is_page = self.path == "/"
            kind, content = ("html", PAGE) if is_page else ("javascript", SHELL.read_bytes())
            self.answer(200, content, f"text/{kind}")
        elif self.server.is_full:
            self.answer(429, b"too many", "text/plain", Retry_After=str(COME_AGAIN_S))
        elif "topics=" not in self.path:
            self.answer(400, b"which topics?", "text/plain")
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"retry: 2000\n\n")
            for kind in AWAITED:
                self.wfile.write(f"event: {kind}\ndata: {{}}\n\n".encode())
            self.wfile.flush()
            self.server.over.wait(PATIENCE_S)


@contextmanager
def made_up_site() -> Iterator[Site]:
    with answering(Site()) as site:
        try:
            yield site
        finally:
            site.over.set()


def test_a_page_of_too_many_says_so_and_asks_again_when_the_site_says(
    browser: webdriver.Chrome,
) -> None:
    with made_up_site() as site:
        person = Person(browser, site.url)
        person.open("/")
        person.see("#live", "Too many open pages")
        site.is_full = False
        person.see("#live", "Live")
        first, *later = browser.execute_script("return window.paused")
        browser.get("about:blank")
    assert 3000 <= first <= 4000
    assert later, "it has not waited again"
    assert all(1000 * COME_AGAIN_S <= pause <= 4000 * COME_AGAIN_S / 3 for pause in later)


def test_every_event_that_a_part_of_a_page_waits_for_reaches_it(
    browser: webdriver.Chrome,
) -> None:
    with made_up_site() as site:
        site.is_full = False
        person = Person(browser, site.url)
        person.open("/")
        person.see("#live", "Live")
        person.until(lambda: AWAITED[-1] in browser.execute_script("return window.came"))
        came = browser.execute_script("return window.came")
        browser.get("about:blank")
    assert sorted(came) == AWAITED
