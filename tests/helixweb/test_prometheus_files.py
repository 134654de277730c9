"""The shipped rules and the dashboard ask for nothing that our pages do not tell."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapes
import yaml

from helixweb.inventory.models import Cluster
from tests.installed import installed

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "helixweb.rules.yml"
DASHBOARD = PACKAGING / "grafana" / "helixweb.json"
_OURS = re.compile(r"\b((?:vllm:|helix_|helixweb:)[a-z0-9_:]+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_WORDS = re.compile(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*\b")
_LANGUAGE = {
    "by", "sum", "max", "rate", "histogram_quantile", "or", "up", "label_values",
}  # fmt: skip


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard_expressions() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def expressions() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *dashboard_expressions()]


pytestmark = pytest.mark.usefixtures("time_stands_still")


def test_every_metric_and_label_asked_for_is_told_by_one_of_our_pages(
    cluster: Cluster, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helixweb.monitoring.moment.output_forecast", lambda *_: 40.0)
    scrapes.serve(cluster, user)
    labels: dict[str, set[str]] = {rule["record"]: set() for rule in rules() if "record" in rule}
    pages = (scrapes.site_page(), scrapes.coordinator_page(), scrapes.agent_page())
    site, coordinator, agent = ({name for name, _, _ in scrapes.samples(page)} for page in pages)
    assert not site & (coordinator | agent), "none is told by two kinds of processes"
    # The coordinator's is what it promised of the fullest node; the agent's has a node's name.
    assert coordinator & agent == {"vllm:kv_cache_usage_perc"}
    for page in pages:
        for name, told, _ in scrapes.samples(page):
            labels.setdefault(name, set()).update(told)
    asked = [found for text in expressions() for found in _OURS.finditer(text)]
    assert len(asked) > 50
    for found in asked:
        assert found[1] in labels, found[0]
        assert set(_LABEL.findall(found[2] or "")) <= labels[found[1]], found[0]


def test_no_metric_is_asked_for_under_a_name_that_is_not_looked_up() -> None:
    """What the test above takes for a name is all that there is."""
    for text in expressions():
        rest = re.sub(r"\{[^}]*\}|\([a-z_, ]*\)(?= ?\()|\[[^\]]*\]", " ", _OURS.sub(" ", text))
        rest = re.sub(r"\bby \([a-z_, ]*\)", " ", rest)
        assert set(_WORDS.findall(rest)) - {"cluster", "for"} <= _LANGUAGE, text


def test_the_dashboard_has_panels_that_do_not_overlap_and_leaves_the_data_source_open() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
    assert "datasource" in {each["name"] for each in dashboard["templating"]["list"]}


def test_every_alert_says_how_grave_it_is_and_what_it_is_about() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"]
            assert "for" in rule


@pytest.fixture(scope="module")
def promtool() -> str:
    """It comes with Prometheus."""
    return installed("promtool", package="prometheus")


@pytest.mark.processes
@pytest.mark.parametrize(
    "command", [["check", "rules", "helixweb.rules.yml"], ["test", "rules", "helixweb.tests.yml"]]
)
def test_promtool_takes_the_rules_and_their_tests(promtool: str, command: list[str]) -> None:
    done = subprocess.run(
        [promtool, *command], cwd=RULES.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
