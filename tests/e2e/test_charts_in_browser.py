"""Scripts in a real browser: charts.js with Plotly, what is painted when, where, with how much room
and of which names; and what a page does that is refused its event stream."""

import copy
import json
import re
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import plotly
import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.answering import QuietHandler, answering
from tests.e2e.person import Person
from tests.helixweb.conftest import TINY_PROBLEM
from tests.helixweb.test_charts import charts_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.browser
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
CHARTS = Path(__file__).resolve().parents[2] / "static" / "js" / "charts.js"
PAGE = """<!doctype html>
<html lang="zh-hans" data-zone="Asia/Tokyo"><head><meta charset="utf-8">
<style>:root {{ --text: #111; --line: #ccc; }} .chart {{ height: 200px; }}</style>
<script src="{plotly}"></script><script src="{charts}"></script></head>
<body>{body}</body></html>"""
CHART = """<div style="height: {above}px"></div>
<div class="chart" id="{name}" data-figure-json="{name}-figure"></div>
<script type="application/json" id="{name}-figure">{figure}</script>"""
FAR_PX = 4000
LISTEN = """
window.painted = [];
document.addEventListener("helix:drawn", (event) => window.painted.push(event.detail.id));
"""
# Appends a point to a chart, as pages do when a sample comes.
GROW = """
const chart = document.getElementById(arguments[0]);
const figure = HelixCharts.figure(chart);
figure.data[0].x.push(3);
figure.data[0].y.push(3);
HelixCharts.draw(chart, figure);
"""
POINTS = "return document.getElementById(arguments[0]).data[0].y.length"


def line(**layout: Any) -> dict[str, Any]:
    return {"data": [{"type": "scatter", "x": [1, 2], "y": [1, 2]}], "layout": layout}


def open_page(
    browser: webdriver.Chrome, folder: Path, figures: dict[str, dict[str, Any]], *, apart_px: int
) -> None:
    """Charts below each other, so far apart; returns when each has been painted once."""
    body = "".join(
        CHART.format(above=apart_px if number else 0, name=name, figure=json.dumps(figure))
        for number, (name, figure) in enumerate(figures.items())
    )
    page = folder / "page.html"
    page.write_text(PAGE.format(plotly=PLOTLY.as_uri(), charts=CHARTS.as_uri(), body=body))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN})
    browser.get(page.as_uri())
    until(browser, f"return window.painted.length >= {len(figures)}")


def until(browser: webdriver.Chrome, script: str, *arguments: Any) -> None:
    WebDriverWait(browser, PATIENCE_S, poll_frequency=0.05).until(
        lambda driver: driver.execute_script(script, *arguments)
    )


def test_charts_in_sight_are_painted_first(browser: webdriver.Chrome, tmp_path: Path) -> None:
    figures = {name: line() for name in ("top", "second", "third")}
    open_page(browser, tmp_path, figures, apart_px=FAR_PX)
    assert browser.execute_script("return window.painted") == ["top", "second", "third"]


def test_hidden_changes_are_painted_when_seen(browser: webdriver.Chrome, tmp_path: Path) -> None:
    open_page(browser, tmp_path, {"top": line(), "below": line()}, apart_px=FAR_PX)
    for name in ("top", "below"):
        browser.execute_script(GROW, name)
    assert browser.execute_script("return window.painted") == ["top", "below", "top"]
    assert [browser.execute_script(POINTS, name) for name in ("top", "below")] == [3, 2]
    browser.execute_script("document.getElementById('below').scrollIntoView()")
    until(browser, "return window.painted.length === 4")
    assert browser.execute_script("return window.painted")[-1] == "below"
    assert browser.execute_script(POINTS, "below") == 3


def test_marks_and_lines_share_one_time_zone(browser: webdriver.Chrome, tmp_path: Path) -> None:
    noon, one = "2026-03-01T12:00:00+00:00", "2026-03-01T13:00:00+00:00"
    figure = line(
        xaxis={"type": "date", "range": [noon, one]},
        shapes=[{"type": "line", "x0": noon, "x1": noon, "y0": 0, "y1": 1, "yref": "paper"}],
        annotations=[{"x": noon, "y": 1, "yref": "paper", "text": "#1"}],
    )
    figure["data"][0]["x"] = [noon, one]
    open_page(browser, tmp_path, {"top": figure}, apart_px=0)
    drawn = browser.execute_script(
        "const { data, layout } = document.getElementById('top');"
        "return [data[0].x[0], layout.xaxis.range[0], layout.shapes[0].x0,"
        " layout.shapes[0].x1, layout.annotations[0].x]"
    )
    assert drawn == ["2026-03-01 21:00:00"] * 5
    ticks = browser.execute_script(
        "return [...document.querySelectorAll('#top .xtick text')].map((tick) => tick.textContent)"
    )
    assert any("2026年3月1日" in tick for tick in ticks), ticks


def test_long_names_of_nodes_have_room_beside_their_bars(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    names = ["a", "W" * 18]
    figure = {
        "data": [{"type": "bar", "orientation": "h", "y": names, "x": [1, 2]}],
        "layout": {
            "margin": {"l": 8, "r": 8, "t": 8, "b": 44},
            "yaxis": {
                "type": "category", "title": {"text": "node"}, "tickmode": "array",
                "tickvals": names, "ticktext": names,
            },
        },
    }  # fmt: skip
    open_page(browser, tmp_path, {"top": figure}, apart_px=0)
    cut = browser.execute_script(
        "const chart = document.getElementById('top').getBoundingClientRect();"
        "return [...document.querySelectorAll('#top .ytick text, #top .ytitle')]"
        ".filter((label) => label.getBoundingClientRect().left < chart.left).length"
    )
    assert cut == 0


NAME = '<img src=x onerror="window.taken=1"><a href="javascript:window.taken=1">tower</a>'
# Plotly makes links and styled spans of what it takes for markup; ours has neither.
TAKEN = """
return [...document.querySelectorAll(".chart a, .chart img:not([src^=data]), [onerror], [onclick]")]
  .map((element) => element.outerHTML).concat(window.taken ? ["it ran"] : []);
"""
SHOWN = "return document.body.textContent.includes('<img src=x')"


def test_no_name_is_markup_in_a_chart_that_is_drawn(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    charts = charts_of(copy.deepcopy(TINY_PROBLEM), name=NAME)
    figures = {f"chart-{number}": chart.figure for number, chart in enumerate(charts.values())}
    open_page(browser, tmp_path, figures, apart_px=0)
    assert browser.execute_script(TAKEN) == []
    assert browser.execute_script(SHOWN), "names are to be seen, as text"


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
WATCHING = b"""<!doctype html><html lang="en"><head><title>A page</title><script>
const plain = window.setTimeout;
window.paused = [];
window.setTimeout = (run, ms) => { paused.push(ms); return plain(run, 10); };
window.came = [];
for (const kind of AWAITED) document.addEventListener(`helix:${kind}`, () => came.push(kind));
</script></head><body>
<span id="live" data-live="Live" data-reconnecting="Reconnecting" data-paused="Paused"
  data-too-many="Too many open pages" data-logged-out="Logged out" hidden></span>
<main data-topics="cluster:1"></main><script src="/shell.js"></script></body></html>"""
WATCHING = WATCHING.replace(b"AWAITED", json.dumps(AWAITED).encode())


class Site(ThreadingHTTPServer):
    """`is_full`: the viewer has as many streams open as allowed."""

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
            kind, content = ("html", WATCHING) if is_page else ("javascript", SHELL.read_bytes())
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


@pytest.fixture
def site(browser: webdriver.Chrome) -> Iterator[Site]:
    """The browser leaves it at the end."""
    with answering(Site()) as made_up:
        yield made_up
        browser.get("about:blank")
        made_up.over.set()


def test_a_refused_page_retries_when_told_to(browser: webdriver.Chrome, site: Site) -> None:
    person = Person(browser, site.url)
    person.open("/")
    person.see("#live", "Too many open pages")
    site.is_full = False
    person.see("#live", "Live")
    first, *later = browser.execute_script("return window.paused")
    assert 3000 <= first <= 4000
    assert later, "it has not waited again"
    assert all(1000 * COME_AGAIN_S <= pause <= 4000 * COME_AGAIN_S / 3 for pause in later)


def test_every_awaited_event_reaches_the_page(browser: webdriver.Chrome, site: Site) -> None:
    site.is_full = False
    person = Person(browser, site.url)
    person.open("/")
    person.see("#live", "Live")
    person.until(lambda: AWAITED[-1] in browser.execute_script("return window.came"))
    assert sorted(browser.execute_script("return window.came")) == AWAITED
