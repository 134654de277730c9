"""Names that are markup, in charts that a browser draws: Plotly shows them and does nothing."""

import copy
from pathlib import Path

import pytest
from selenium import webdriver

from tests.e2e.test_charts_in_browser import open_page
from tests.helixweb.conftest import TINY_PROBLEM
from tests.helixweb.test_charts import charts_of

pytestmark = pytest.mark.browser
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
