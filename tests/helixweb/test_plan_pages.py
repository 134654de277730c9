"""The pages of plan runs: start one, watch it, read the plan."""

from typing import Any

import pytest
from django.test import Client

from helixweb.common import jobs
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning.models import Explanation, PlanRun, Simulation
from helixweb.planning.options import options_from_json
from helixweb.planning.services import fit as planning_fit
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.plan_options import BASELINES, PlanOptions
from tests.helixweb.looking import answered, contains, shows, tight
from tests.helixweb.searching import SEARCH, begun, claimed, searched


@pytest.fixture
def form(cluster: Cluster) -> dict[str, Any]:
    """What the form sends when nothing is changed."""
    return {
        "cluster": cluster.pk, "model": LanguageModel.objects.get().pk, **SEARCH,
        "time_limit_s": "60", "objective": "flow", "prune_degree": "",
    }  # fmt: skip


@pytest.fixture
def run(cluster: Cluster, user: Any) -> PlanRun:
    return begun(cluster, user, PlanOptions(objective="flow", time_limit_s=10))


def pinned(*rows: tuple[str, int | str, int | str]) -> dict[str, Any]:
    """What the picker of pins sends: these rows, and a blank one."""
    nodes, firsts, ends = zip(*rows, ("", "", ""), strict=True)
    return {"pinned-node": nodes, "pinned-first": firsts, "pinned-end": ends}


def text(browser: Client, path: str) -> str:
    answer = answered(browser.get(path), 200)
    return answer.content.decode()


@pytest.mark.parametrize(
    ("objective", "field"), [("latency", "ttft_limit_s"), ("fewest_nodes", "demand_tokens_per_s")]
)
def test_the_form_asks_at_its_field_for_what_an_objective_needs(
    browser: Client, form: dict[str, Any], objective: str, field: str
) -> None:
    response = answered(browser.post("/plans/new", {**form, "objective": objective}), 422)
    assert response.context["form"].errors == {field: ["The objective needs a number here."]}
    assert not PlanRun.unscoped.exists()


def test_every_option_reaches_the_run(browser: Client, form: dict[str, Any], run: PlanRun) -> None:
    searched(run)
    run.refresh_from_db()
    typed = {
        "placer": "milp",
        "relative_gap": "2",
        "prune_degree": "6",
        "seed": "7",
        "max_hops": "3",
        "max_layers_per_node": "3",
        "kv_reserve_tokens": "2.5",
        "excluded_nodes": ["mini"],
        **pinned(("tower", 0, 3)),
        "max_layers_of-node": ["laptop", ""],
        "max_layers_of-layers": ["1", ""],
        "survive_one_loss": "on",
        "start_plan": run.plan.pk,
    }
    answer = browser.post("/plans/new", {**form, **typed})
    started = PlanRun.unscoped.exclude(pk=run.pk).get()
    assert answer.headers["Location"] == f"/plans/{started.pk}/"
    assert started.created_by.username == "ada"
    assert "tiny-llama on tiny" in text(browser, f"/plans/{started.pk}/")
    assert options_from_json(started.options) == PlanOptions(
        objective="flow",
        placer="milp",
        relative_gap=0.02,
        prune_degree=6,
        seed=7,
        rules=PlacementRules(
            max_hops=3,
            max_layers_per_node=3,
            kv_reserve_tokens=2.5,
            excluded_nodes=frozenset({"mini"}),
            pinned={"tower": LayerRange(first=0, end=3)},
            max_layers_of={"laptop": 1},
        ),
    )
    assert started.survive_one_loss
    assert started.start_plan == run.plan


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (pinned(("tower", "", "")), "leave the whole row blank"),
        (pinned(("tower", 0, 1), ("tower", 1, 2)), "tower has two rows; keep one"),
        (pinned(("nobody", 0, 1)), "nobody is not one of the available choices"),
        (pinned(("mini", 0, 1)) | {"excluded_nodes": "mini"}, "is excluded and pinned"),
        ({"excluded_nodes": "nobody"}, "&#x27;nobody&#x27;"),
        (
            {"max_layers_of-node": "tower", "max_layers_of-layers": "many"},
            "Enter a whole number",
        ),
        ({"start_plan": "99"}, "not one of the available choices"),
        (
            {"objective": "decode", "method": "mixed", "survive_one_loss": "on"},
            "known of pipelines only",
        ),
        ({"time_limit_s": "0.25", "relative_gap": "3.5"}, "greater than or equal to 1"),
        ({"time_limit_s": "0.25", "relative_gap": "3.5"}, 'value="3.5"'),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_name(
    browser: Client, form: dict[str, Any], typed: dict[str, Any], says: str
) -> None:
    answer = answered(browser.post("/plans/new", {**form, **typed}), 422)
    shows(answer, says, '<details class="card" open>')
    assert not PlanRun.unscoped.exists()


def test_a_start_plan_fills_the_form(browser: Client, cluster: Cluster, user: Any) -> None:
    rules = PlacementRules(pinned={"mini": LayerRange(first=3, end=4)}, max_layers_of={"tower": 3})
    run = begun(cluster, user, PlanOptions(objective="flow", time_limit_s=12, rules=rules))
    searched(run)
    page = text(browser, f"/plans/new?start={run.plan.pk}")
    contains(page, 'value="12"', '<option value="mini" selected>')
    contains(page, '<option value="tower" selected>', f'<option value="{run.plan.pk}" selected>')
    assert f"plan {run.plan.pk}: tiny-llama" in text(
        browser, f"/plans/new/starts?cluster={cluster.pk}"
    )
    assert "tiny-llama" not in text(browser, "/plans/new/starts?cluster=999")


def test_too_small_a_cluster_fails(browser: Client, cluster: Cluster, form: dict[str, Any]) -> None:
    cluster.links.all().delete()
    cluster.nodes.exclude(name="mini").delete()
    assert "does not fit" in text(
        browser, f"/plans/new/fit?cluster={form['cluster']}&model={form['model']}"
    )
    shows(browser.post("/plans/new", form), "can hold 2 layers", "add nodes")
    assert not PlanRun.unscoped.exists()


def test_the_preview_has_the_baselines_beside_and_follows_the_inventory(
    browser: Client, cluster: Cluster, form: dict[str, Any]
) -> None:
    address = f"/plans/new/fit?cluster={form['cluster']}&model={form['model']}"
    page = text(browser, address)
    contains(page, "can hold 7 layers; tiny-llama has 4", "No placement can exceed")
    assert browser.get("/plans/new/fit?cluster=x&model=1").status_code == 404
    fit = planning_fit.preview_fit(cluster=cluster, model=LanguageModel.objects.get())
    problem = build_problem(cluster, LanguageModel.objects.get())
    for baseline in fit["baselines"]:
        assert baseline["title"] in page
        placed, flow = BASELINES[baseline["name"]](problem), None
        if placed is not None:
            flow = max_flow(problem, placed, partial_inference=True).value_tokens_per_s
        assert baseline["flow_tokens_per_s"] == flow
    assert any(baseline["flow_tokens_per_s"] for baseline in fit["baselines"])
    cluster.nodes.filter(name="laptop").delete()
    assert "can hold 5 layers" in text(browser, address)
    cluster.profiles.all().delete()
    assert "tower" in text(browser, address), "what the inventory lacks"


def test_while_it_runs_the_page_listens_from_its_rendering(browser: Client, run: PlanRun) -> None:
    page = text(browser, f"/plans/{run.pk}/")
    assert f'data-topics="plan-run:{run.pk}"' in page
    assert "data-last-event-id=" in page
    assert 'hx-trigger="helix:plan-run from:document"' in page
    contains(page, "Waiting for a worker", "No placement has been found yet.")
    swapped = browser.get(f"/plans/{run.pk}/", headers={"HX-Request": "true"}).content.decode()
    assert tight(swapped).startswith('<div id="run"')
    assert "<nav" not in swapped, "a change of state swaps the run without the shell around it"


def test_a_finished_run_listens_until_its_studies_end(browser: Client, run: PlanRun) -> None:
    searched(run)
    page = text(browser, f"/plans/{run.pk}/")
    assert f'data-topics="plan-run:{run.pk}"' in page
    assert 'hx-trigger="helix:explanation from:document"' in page
    Explanation.unscoped.update(status=Explanation.Status.SUCCEEDED)
    assert "data-topics" in text(browser, f"/plans/{run.pk}/")
    Simulation.unscoped.update(status=Simulation.Status.SUCCEEDED)
    answer = browser.get(f"/plans/{run.pk}/")
    page = answer.content.decode()
    run.refresh_from_db()
    assert "data-topics" not in page
    assert "compute limits" in page
    assert "the link limits" not in page
    for figure in ("flow-figure", "layers-figure", "utilisation-figure", "curve-figure"):
        assert f'<script id="{figure}" type="application/json">' in page
    assert {node.name for node in answer.context["page"]} == set(run.plan.document["placement"])
    assert 'id="deploy"' in page
    assert "style=" not in page, "the content security policy blocks inline styles"


def test_cancel_ends_a_queued_run_and_a_second_says_so(browser: Client, run: PlanRun) -> None:
    browser.post(f"/plans/{run.pk}/cancel")
    assert "cancelled" in text(browser, f"/plans/{run.pk}/")
    browser.post(f"/plans/{run.pk}/cancel")
    assert "had ended already" in text(browser, f"/plans/{run.pk}/")


def test_a_run_that_has_found_something_can_be_accepted(browser: Client, run: PlanRun) -> None:
    assert "Accept the best so far" not in text(browser, f"/plans/{run.pk}/")
    browser.post(f"/plans/{run.pk}/accept")
    assert "has found nothing yet" in text(browser, f"/plans/{run.pk}/")
    claimed(run)
    PlanRun.unscoped.filter(pk=run.pk).update(flow_tokens_per_s=10.0)
    assert "Accept the best so far" in text(browser, f"/plans/{run.pk}/")
    browser.post(f"/plans/{run.pk}/accept")
    page = text(browser, f"/plans/{run.pk}/")
    assert "accepting" in page
    assert "Accept the best so far" not in page


def test_a_finished_run_is_searched_on_for_some_seconds(browser: Client, run: PlanRun) -> None:
    extend = f'action="/plans/{run.pk}/extend"'
    assert extend not in text(browser, f"/plans/{run.pk}/")
    searched(run)
    assert extend in text(browser, f"/plans/{run.pk}/")
    browser.post(f"/plans/{run.pk}/extend", {"seconds": "0"})
    assert "greater than or equal to 1" in text(browser, f"/plans/{run.pk}/")
    answer = browser.post(f"/plans/{run.pk}/extend", {"seconds": "25"})
    longer = PlanRun.unscoped.get(continues=run)
    assert answer.headers["Location"] == f"/plans/{longer.pk}/"
    assert longer.options["time_limit_s"] == 25
    assert f'goes on from <a href="/plans/{run.pk}/">' in text(browser, f"/plans/{longer.pk}/")


def test_a_failed_run_shows_its_error(browser: Client, run: PlanRun) -> None:
    failed = jobs.Outcome(status=PlanRun.Status.FAILED, columns={"error": "no placement <found>"})
    jobs.end(run, claimed(run).attempt, failed)
    assert "no placement &lt;found&gt;" in text(browser, f"/plans/{run.pk}/")
