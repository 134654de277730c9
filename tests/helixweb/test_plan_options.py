"""Plan options as columns keep them, as words say them, and as rows of lists and numbers ask for
them."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.charts.curves import CurveGoal, incumbent_curve
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from helixweb.planning.models import Incumbent, Plan, PlanRun
from helixweb.planning.objectives import objective_figure
from helixweb.planning.options import options_from_json
from helixweb.planning.stored import stored_plan
from planner.serialization import problem_from_dict
from tests.helixweb.looking import answered, fresh
from tests.helixweb.searching import SEARCH


def test_a_plan_without_a_hop_limit_takes_that_of_its_search(
    plan: Plan,
) -> None:
    assert stored_plan(plan).max_hops is None
    PlanRun.unscoped.filter(pk=plan.run.pk).update(
        options=plan.run.options | {"rules": plan.run.options["rules"] | {"max_hops": 2}}
    )
    Plan.unscoped.filter(pk=plan.pk).update(created_at=plan.created_at + timedelta(days=1))
    assert "max_hops" not in fresh(plan).document
    assert stored_plan(plan).max_hops == 2


def test_fewest_nodes_are_counted_once_the_demand_is_met() -> None:
    assert str(objective_figure("fewest_nodes", 0.82)) == (
        "82% of the demand is met; no node is idle"
    )
    spared = objective_figure("fewest_nodes", 5.0)
    assert (str(spared), spared.plotted) == ("3 idle; the demand is met", 3.0)


def curve(unit: str) -> list[dict[str, object]]:
    point = Incumbent(
        elapsed_s=1.0, flow_tokens_per_s=100.0, upper_bound_tokens_per_s=120.0, placer="some"
    )
    goal = CurveGoal(name="Served", unit=unit, values=[40.0])
    chart = incumbent_curve([point], until_s=2.0, goal=goal)
    assert chart.rows == (("1.0", "40", "100", "120", "some"),)
    assert chart.summary == (
        f"Served 40 {unit} by some after 1.0 s, with a flow of 100 tokens/s; no flow can exceed "
        "120 tokens/s."
    )
    return chart.figure["data"]


def test_tokens_per_second_share_the_flows_axis_and_others_have_their_own() -> None:
    assert curve("decode tokens/s")[3]["yaxis"] == "y"
    assert curve("nodes left idle")[3]["yaxis"] == "y2"


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
    found = re.search(rf'<select [^>]*name="{name}".*?</select>', page, re.DOTALL)
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
