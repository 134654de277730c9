"""charts.js with Plotly in a real browser: what is painted when, where, and with how much room."""

import json
from pathlib import Path
from typing import Any

import plotly
import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

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


def test_charts_in_sight_come_first_and_the_others_without_being_asked_for(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    figures = {name: line() for name in ("top", "second", "third")}
    open_page(browser, tmp_path, figures, apart_px=FAR_PX)
    assert browser.execute_script("return window.painted") == ["top", "second", "third"]


def test_what_changes_out_of_sight_is_painted_when_it_is_seen(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    open_page(browser, tmp_path, {"top": line(), "below": line()}, apart_px=FAR_PX)
    for name in ("top", "below"):
        browser.execute_script(GROW, name)
    assert browser.execute_script("return window.painted") == ["top", "below", "top"]
    assert [browser.execute_script(POINTS, name) for name in ("top", "below")] == [3, 2]
    browser.execute_script("document.getElementById('below').scrollIntoView()")
    until(browser, "return window.painted.length === 4")
    assert browser.execute_script("return window.painted")[-1] == "below"
    assert browser.execute_script(POINTS, "below") == 3


def test_marks_of_moments_stand_where_the_lines_say_they_are(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
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
