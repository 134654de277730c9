"""Plans side by side, and plans on changed copies of their clusters."""

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster
from helixweb.planning import comparing
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.what_if import AddedNodes, Edits, carried_over, edited, worth
from planner.domain.cluster import Link
from planner.domain.errors import InvalidProblem
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.serialization import problem_from_dict
from tests.helixweb.looking import answered, shows


@pytest.fixture
def problem(tiny_problem: dict[str, Any]) -> Problem:
    return problem_from_dict(tiny_problem)


@pytest.fixture
def twin(plan: Plan) -> Plan:
    """The same plan once more, but tower holds one layer less."""
    found = Plan.unscoped.defer(None).get(pk=plan.pk)
    found.pk = found.run = None
    first, end = found.document["placement"]["tower"]
    found.document["placement"]["tower"] = [first, end - 1]
    found.flow_tokens_per_s /= 2
    found.save()
    return found


def test_edits_are_made_on_a_copy(problem: Problem) -> None:
    link = Link(source="home", target="home", bandwidth_bytes_per_s=1e6, latency_s=0.5)
    changed = edited(
        problem,
        Edits(
            removed=frozenset({"laptop"}),
            added=(AddedNodes(count=2, profile="big", region="home"),),
            upgraded={"mini": "big"},
            links=(link,),
        ),
    )
    cluster = changed.cluster
    assert [node.name for node in cluster.nodes] == ["tower", "mini", "new-1", "new-2"]
    assert cluster.node("mini").compute_profile == "big"
    between = cluster.link_between("new-1", "new-2")
    assert (between.bandwidth_bytes_per_s, between.latency_s) == (1e6, 0.5)


def test_a_new_node_has_the_named_links_of_a_like_one(problem: Problem) -> None:
    added = (AddedNodes(count=1, profile="big", region="home"),)
    cluster = edited(problem, Edits(added=added)).cluster
    like, new = cluster.link_between("tower", "mini"), cluster.link_between("new-1", "mini")
    assert new.bandwidth_bytes_per_s == like.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (Edits(removed=frozenset({"ghost"})), "ghost"),
        (Edits(upgraded={"tower": "H100"}), "H100"),
        (Edits(added=(AddedNodes(count=1, profile="H100", region="home"),)), "H100"),
        (Edits(added=(AddedNodes(count=1, profile="big", region="moon"),)), "moon"),
        (Edits(added=(AddedNodes(count=999, profile="big", region="home"),)), "fewer"),
        (Edits(removed=frozenset({"tower", "laptop", "mini"})), "all nodes"),
        (
            Edits(
                links=(Link(source="home", target="x", bandwidth_bytes_per_s=1.0, latency_s=0.0),)
            ),
            "'x'",
        ),
    ],
)
def test_what_the_problem_does_not_have_is_named(problem: Problem, edits: Edits, said: str) -> None:
    with pytest.raises(InvalidProblem, match=said):
        edited(problem, edits)


def test_new_nodes_take_the_layers_that_are_served_least(problem: Problem) -> None:
    held = {
        "tower": LayerRange(first=0, end=2),
        "laptop": LayerRange(first=2, end=4),
    }
    added = (AddedNodes(count=1, profile="small", region="home"),)
    changed = edited(problem, Edits(added=added))
    carried = carried_over(problem, Placement(layers=held), changed)
    assert carried.layers == {**held, "new-1": LayerRange(first=2, end=4)}


def test_a_new_node_joins_one_component_and_leaves_the_others_apart(problem: Problem) -> None:
    def with_small(count: int) -> Problem:
        added = (AddedNodes(count=count, profile="small", region="home"),)
        return edited(problem, Edits(added=added))

    low, high = LayerRange(first=0, end=2), LayerRange(first=2, end=4)
    fast, slow = frozenset({"tower", "laptop"}), frozenset({"new-1", "new-2"})
    apart = Placement(
        layers={"tower": low, "laptop": high, "new-1": low, "new-2": high},
        components=(fast, slow),
    )
    carried = carried_over(with_small(2), apart, with_small(3))
    assert carried.layers == {**apart.layers, "new-3": low}
    assert carried.components == (fast, slow | {"new-3"})


def test_a_placement_has_a_cost_if_all_nodes_do(
    measured_problem: dict[str, Any],
) -> None:
    held = {"tower": LayerRange(first=0, end=3), "mini": LayerRange(first=3, end=4)}
    priced = problem_from_dict(measured_problem)
    found = worth(priced, Placement(layers=held), partial_inference=True)
    assert found.price_per_hour == pytest.approx(1.75 + 1.25), "its own, and its profile's"
    assert found.million_tokens_per_price == pytest.approx(found.decode_tokens_per_s * 0.0036 / 3)
    del measured_problem["compute_profiles"]["small"]["price_per_hour"]
    unknown = problem_from_dict(measured_problem)
    found = worth(unknown, Placement(layers=held), partial_inference=True)
    assert (found.price_per_hour, found.million_tokens_per_price) == (None, None)


def test_the_page_estimates_a_change_at_once(browser: Client, plan: Plan) -> None:
    path = f"/plans/by-id/{plan.pk}/what-if"
    page = browser.get(path).content.decode()
    for choice in ("mini", "big", "away", "coordinator"):
        assert f'<option value="{choice}">' in page
    form = {
        "added-count": ["2", "1"], "added-profile": ["big", "small"],
        "added-region": ["home", "away"],
        "links-source": "home", "links-target": "away", "links-bandwidth_bytes_per_s": "2.5",
        "links-latency_s": "3",
    }  # fmt: skip
    answer = answered(browser.post(path, {**form, "time_limit_s": "5"}), 200)
    assert answer.context["form"].edits() == Edits(
        added=(
            AddedNodes(count=2, profile="big", region="home"),
            AddedNodes(count=1, profile="small", region="away"),
        ),
        links=(Link(source="home", target="away", bandwidth_bytes_per_s=312.5e6, latency_s=0.003),),
    )
    after = answer.context["answer"]["after"]
    assert after.nodes_used == answer.context["answer"]["before"].nodes_used + 3
    assert after.flow_tokens_per_s > answer.context["answer"]["before"].flow_tokens_per_s
    assert PlanRun.unscoped.count() == 1
    answer = answered(browser.post(path, {"removed": "tower", "time_limit_s": "5"}), 200)
    after = answer.context["answer"]["after"]
    assert (after.flow_tokens_per_s, after.ttft_s, after.tpot_s) == (0, None, None)
    assert "0 ms" not in answer.content.decode()


def test_a_search_on_a_copy_says_so(browser: Client, plan: Plan, cluster: Cluster) -> None:
    form = {
        "removed": "mini", "upgraded-node": "laptop", "upgraded-becomes": "big",
        "time_limit_s": "5", "solve": "1",
    }  # fmt: skip
    answer = browser.post(f"/plans/by-id/{plan.pk}/what-if", form)
    run = PlanRun.unscoped.latest("pk")
    assert answer.headers["Location"] == f"/plans/{run.pk}/"
    assert run.what_if == "without mini, laptop as big"
    assert [node["name"] for node in run.problem["nodes"]] == ["tower", "laptop"]
    assert run.start_plan == plan
    assert cluster.nodes.count() == 3
    plan.run.what_if = run.what_if  # type: ignore[union-attr]
    plan.run.save()  # type: ignore[union-attr]
    page = browser.get(f"/plans/{plan.run_id}/").content.decode()
    assert "changed copy of the cluster (without mini, laptop as big)" in page


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"added-count": "2"}, "leave the whole row blank"),
        ({"added-count": "0", "added-profile": "big", "added-region": "home"}, "or equal to 1"),
        ({"upgraded-node": "ghost", "upgraded-becomes": "big"}, "ghost is not one of"),
        ({"upgraded-node": ["mini"] * 2, "upgraded-becomes": ["big"] * 2}, "mini has two rows"),
        ({"links-bandwidth_bytes_per_s": "3"}, "leave the whole row blank"),
        (
            {
                "links-source": "home", "links-target": "away", "links-bandwidth_bytes_per_s": "0",
                "links-latency_s": "1",
            },
            "bandwidth",
        ),
        ({"removed": "ghost"}, "is no node here; choose from the list."),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_read_is_named(
    browser: Client, plan: Plan, typed: dict[str, Any], said: str
) -> None:
    answer = browser.post(f"/plans/by-id/{plan.pk}/what-if", {**typed, "time_limit_s": "5"})
    assert answer.status_code == 422
    assert said in answer.content.decode()


def test_plans_are_compared_side_by_side(
    browser: Client, plan: Plan, twin: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = browser.get("/plans/compare", {"plan": [plan.pk, twin.pk]})
    shows(page, f"plan {twin.pk}")
    lines = {line["node"]: line["differs"] for line in page.context["comparison"]["nodes"]}
    assert lines["tower"]
    assert sum(lines.values()) == 1
    assert page.context["comparison"]["plans"][1]["moved_bytes"] == 0  # it only drops a layer
    monkeypatch.setattr(comparing, "MANY_NODES", 1)
    page = browser.get("/plans/compare", {"plan": [plan.pk, twin.pk]})
    found = page.context["comparison"]
    num_nodes = len(found["nodes"])
    assert [line["node"] for line in found["shown"]] == ["tower"], "of many nodes those that differ"
    assert f"Left out: {num_nodes - 1} of {num_nodes} nodes" in page.content.decode()


@pytest.mark.parametrize("ids", [[], ["x"], ["1", "2", "3", "4", "5"], ["1", "x"]])
def test_incomparable_plans_are_refused(browser: Client, plan: Plan, ids: list[str]) -> None:
    answer = browser.get("/plans/compare", {"plan": ids})
    assert "choose" in answer.context["refusal"]
    assert answer.context["comparison"] is None


def test_the_other_plan_is_chosen_from_a_list(browser: Client, plan: Plan, twin: Plan) -> None:
    assert (
        f"/plans/compare?plan={plan.pk}" in browser.get(f"/plans/{plan.run_id}/").content.decode()
    )
    page = browser.get("/plans/compare", {"plan": plan.pk})
    shown = page.content.decode()
    assert (page.context["comparison"], page.context["refusal"]) == (None, "")
    assert shown.count('<select id="plan-') == comparing.MOST_PLANS
    assert shown.count(f'<option value="{plan.pk}" selected>') == 1
    # What the form then sends: the lists that were left blank are empty.
    page = browser.get("/plans/compare", {"plan": [plan.pk, twin.pk, "", ""]})
    assert [one["row"].pk for one in page.context["comparison"]["plans"]] == [plan.pk, twin.pk]
    assert page.content.decode().count(" selected>") == 2


def test_comparisons_and_what_ifs_over_rest(api: APIClient, plan: Plan, twin: Plan) -> None:
    found = answered(api.get("/api/v1/plans/compare/", {"plan": [twin.pk, plan.pk]}), 200)
    assert [one["plan"] for one in found.data["plans"]] == [twin.pk, plan.pk]
    assert found.data["plans"][1]["moved_bytes"] == pytest.approx(1e6)
    assert found.data["plans"][1]["objective"] == "flow"
    assert api.get("/api/v1/plans/compare/", {"plan": plan.pk}).status_code == 400
    edits = {"added": [{"count": 1, "profile": "big", "region": "home"}]}
    answer = answered(api.post(f"/api/v1/plans/{plan.pk}/what-if/", edits, format="json"), 200)
    assert answer.data["run"] is None
    assert answer.data["after"]["nodes_used"] == answer.data["before"]["nodes_used"] + 1
    searched = {**edits, "options": {"time_limit_s": 2, "objective": "flow"}}
    answer = api.post(f"/api/v1/plans/{plan.pk}/what-if/", searched, format="json")
    run = PlanRun.unscoped.get(pk=answer.data["run"])
    assert (run.what_if, run.options["objective"]) == ("+1 big in home", "flow")
    refused = api.post(f"/api/v1/plans/{plan.pk}/what-if/", {"removed": ["ghost"]}, format="json")
    assert refused.status_code in (400, 422)
