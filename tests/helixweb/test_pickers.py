"""Pickers of rules about single nodes: rows of lists and numbers instead of text."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_from_json
from planner.serialization import problem_from_dict
from tests.helixweb.looking import answered
from tests.helixweb.searching import SEARCH


def rows_of(page: str, name: str) -> list[str]:
    """What the picker's rows show, in the order of their columns; a row of lists and numbers."""
    rows = []
    for row in re.findall(r"data-row>.*?data-remove-row", page, re.DOTALL):
        if f'name="{name}-' in row:
            cells = re.findall(r'<option value="([^"]*)" selected>|<input[^>]*value="(\d+)"', row)
            rows.append(" ".join(one or other for one, other in cells))
    return rows


def listed(page: str, name: str) -> list[str]:
    """The choices of the first list of this name."""
    found = re.search(rf'<select name="{name}".*?</select>', page, re.DOTALL)
    return re.findall(r'<option value="([^"]+)"', found[0])


@pytest.mark.parametrize("address", ["/plans/new", "/plans/by-id/{plan}/replan"])
def test_a_page_has_a_blank_row_without_scripts(browser: Client, plan: Plan, address: str) -> None:
    page = browser.get(address.format(plan=plan.pk)).content.decode()
    assert rows_of(page, "pinned") == [""]
    assert rows_of(page, "max_layers_of") == [""]
    assert listed(page, "pinned-node") == ["laptop", "mini", "tower"]


def test_replanning_takes_pins_from_rows_and_shows_them_again(browser: Client, plan: Plan) -> None:
    address = f"/plans/by-id/{plan.pk}/replan"
    chosen = {
        "pinned-node": ["", "tower", "laptop", ""],
        "pinned-first": ["", "0", "2", ""],
        "pinned-end": ["", "2", "2", ""],
    }
    refused = answered(browser.post(address, {**SEARCH, **chosen}), 422)
    page = refused.content.decode()
    assert rows_of(page, "pinned") == ["tower 0 2", "laptop 2 2", ""]
    assert "layer range [2, 2) is empty" in page
    ids = re.findall(r'id="(id_[^"]*)"', page)
    assert len(ids) == len(set(ids))
    chosen["pinned-end"] = ["", "2", "4", ""]
    browser.post(address, {**SEARCH, **chosen})
    run = PlanRun.unscoped.latest("pk")
    pins = options_from_json(run.options).rules.pinned
    assert {name: str(held) for name, held in pins.items()} == {
        "tower": "[0, 2)",
        "laptop": "[2, 4)",
    }


def test_a_row_with_a_cell_too_few_is_read_as_incomplete(browser: Client, plan: Plan) -> None:
    refused = browser.post(
        f"/plans/by-id/{plan.pk}/replan", {**SEARCH, "pinned-node": ["tower"], "pinned-first": "0"}
    )
    assert refused.status_code == 422
    assert "pinned" in refused.context["form"].errors


def test_the_nodes_to_choose_from_are_those_of_the_cluster_just_chosen(
    browser: Client, cluster: Cluster, tiny_problem: dict[str, Any], user: Any
) -> None:
    tiny_problem["nodes"] = [{"name": "attic", "region": "home", "compute_profile": "big"}]
    tiny_problem["network"]["links"] = []
    other = import_problem(problem_from_dict(tiny_problem), cluster_name="other")
    page = browser.get("/plans/new/node-rules", {"cluster": other.pk}).content.decode()
    for name in ("excluded_nodes", "pinned-node", "max_layers_of-node"):
        assert listed(page, name) == ["attic"]


def test_rules_about_lost_nodes_are_left_out(browser: Client, plan: Plan, cluster: Cluster) -> None:
    pins = {"mini": {"first": 3, "end": 4}, "tower": {"first": 0, "end": 3}}
    plan.run.options["rules"]["pinned"] = pins
    plan.run.save()
    long_ago = timezone.now() - timedelta(minutes=5)
    cluster.nodes.filter(name="mini").update(joined_at=long_ago, last_seen_at=long_ago)
    page = browser.get(f"/plans/by-id/{plan.pk}/replan").content.decode()
    assert rows_of(page, "pinned") == ["tower 0 3", ""]
    assert '<option value="mini" selected>' in page
    records.delete(cluster.nodes.get(name="mini"))
    page = browser.get("/plans/new", {"start": plan.pk}).content.decode()
    assert rows_of(page, "pinned") == ["tower 0 3", ""]
