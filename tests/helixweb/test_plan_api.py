"""Plan runs and plans over REST."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning.models import Plan, PlanRun
from planner.serialization import plan_from_dict
from tests.helixweb.looking import answered, denied
from tests.helixweb.searching import claimed, searched

RUNS = "/api/v1/plan-runs/"


@pytest.fixture
def request_body(cluster: Cluster) -> dict[str, Any]:
    return {"cluster": cluster.pk, "model": LanguageModel.objects.get().pk}


@pytest.fixture
def run(api: APIClient, request_body: dict[str, Any]) -> PlanRun:
    return PlanRun.unscoped.get(pk=api.post(RUNS, request_body).json()["id"])


@pytest.fixture
def plan(run: PlanRun) -> Plan:
    """The run's plan, found without a worker."""
    return searched(run)


@pytest.mark.parametrize(
    ("options", "field", "says"),
    [
        ({"time_limit": 5}, "options.time_limit", "known ones are: time_limit_s"),
        ({"time_limit_s": 0}, "options.time_limit_s", "greater than or equal to 1"),
        ({"time_limit_s": 1e6}, "options.time_limit_s", "less than or equal to 14400"),
        ({"time_limit_s": "nan"}, "options.time_limit_s", "valid number"),
        ({"solver": "cplex"}, "options.solver", '"cplex" is not a valid choice'),
        ({"warm_start": "magic"}, "options.warm_start", '"magic" is not a valid choice'),
        ({"relative_gap": -0.1}, "options.relative_gap", "greater than or equal to 0"),
        ({"prune_degree": "many"}, "options.prune_degree", "valid number"),
        ({"partial_inference": "perhaps"}, "options.partial_inference", "valid boolean"),
        ({"seed": -1}, "options.seed", "greater than or equal to 0"),
        ({"placer": "oracle"}, "options.placer", '"oracle" is not a valid choice'),
        ({"baselines": ["best"]}, "options.baselines", '"best" is not a valid choice'),
        ({"rules": {"hops": 3}}, "options.rules.hops", "known ones are: max_hops"),
        ({"rules": {"max_hops": 0}}, "options.rules.max_hops", "greater than or equal to 1"),
        (
            {"rules": {"pinned": {"tower": {"first": 0, "last": 1}}}},
            "options.rules.pinned.tower.last",
            "known ones are: first, end",
        ),
        (
            {"rules": {"max_layers_of": {"tower": -1}}},
            "options.rules.max_layers_of.tower",
            "greater than or equal to 0",
        ),
        ({"rules": {"kv_reserve_tokens": -1}}, "options.rules.kv_reserve_tokens", "equal to 0"),
        ([], "options", "dictionary"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    api: APIClient, request_body: dict[str, Any], options: Any, field: str, says: str
) -> None:
    answer = answered(api.post(RUNS, {**request_body, "options": options}), 400)
    assert answer.headers["Content-Type"] == "application/problem+json"
    (error,) = answer.json()["errors"]
    assert error["field"].startswith(field)
    assert says in error["message"]
    assert not PlanRun.unscoped.exists()


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"pinned": {"tower": {"first": 2, "end": 2}}}, "[2, 2) is empty"),
        ({"pinned": {"tower": {"first": 0, "end": 9}}}, "has 4 layers"),
        ({"excluded_nodes": ["nobody"]}, "'nobody'"),
        ({"excluded_nodes": ["tower", "laptop"]}, "can hold 2 layers"),
        ({"pinned": {"laptop": {"first": 0, "end": 3}}}, "pin it to 2 layers or fewer"),
    ],
)
def test_rules_that_contradict_the_cluster_are_refused_in_the_planners_words(
    api: APIClient, request_body: dict[str, Any], rules: dict[str, Any], says: str
) -> None:
    denied(api.post(RUNS, {**request_body, "options": {"rules": rules}}), 400, says)
    assert not PlanRun.unscoped.exists()


def test_the_options_that_a_run_shows_start_the_same_run_again(
    api: APIClient, request_body: dict[str, Any]
) -> None:
    rules = {
        "max_hops": 3,
        "excluded_nodes": ["mini"],
        "pinned": {"tower": {"first": 0, "end": 3}},
        "max_layers_of": {"laptop": 1},
    }
    options = {"seed": 4, "placer": "milp", "baselines": ["swarm"], "rules": rules}
    first = answered(api.post(RUNS, {**request_body, "options": options}), 202)
    assert first.json() == api.get(first.headers["Location"]).json()
    assert (first.json()["status"], first.json()["plan"]) == ("queued", None)
    assert first.json()["options"]["partial_inference"] is True
    again = answered(api.post(RUNS, {**request_body, "options": first.json()["options"]}), 202)
    assert again.json()["options"] == first.json()["options"]
    assert again.json()["options"]["rules"]["pinned"] == rules["pinned"]


def test_what_survives_a_loss_is_of_pipelines(api: APIClient, request_body: dict[str, Any]) -> None:
    asked = {**request_body, "survive_one_loss": True}
    refused = answered(api.post(RUNS, {**asked, "options": {"method": "mixed"}}), 400)
    assert "known of pipelines only, not of 'mixed'" in refused.json()["detail"]
    unsaid = api.post(RUNS, {**asked, "options": {"seed": 3}})
    assert unsaid.json()["options"]["objective"] == "decode"


def test_a_run_begins_with_an_earlier_plan_of_its_own_cluster_only(
    api: APIClient, request_body: dict[str, Any], plan: Plan
) -> None:
    begun = api.post(RUNS, {**request_body, "start_plan": plan.pk, "survive_one_loss": True})
    assert (begun.json()["start_plan"], begun.json()["survive_one_loss"]) == (plan.pk, True)
    other = api.post("/api/v1/clusters/", {"name": "other"}).json()
    refused = api.post(RUNS, {**request_body, "cluster": other["id"], "start_plan": plan.pk})
    assert refused.status_code == 400
    assert "is of another cluster than 'other'" in refused.json()["detail"]
    for field in ("start_plan", "cluster"):
        unknown = api.post(RUNS, {**request_body, field: 999})
        assert '"999"' in unknown.json()["detail"]


def test_only_a_running_run_with_a_placement_is_accepted(api: APIClient, run: PlanRun) -> None:
    denied(api.post(f"{RUNS}{run.pk}/accept/"), 409, "is queued and has not found a placement")
    claimed(run)
    PlanRun.unscoped.filter(pk=run.pk).update(flow_tokens_per_s=1.0)
    accepted = api.post(f"{RUNS}{run.pk}/accept/")
    assert (accepted.status_code, accepted.json()["accept_requested"]) == (202, True)
    PlanRun.unscoped.filter(pk=run.pk).update(status=PlanRun.Status.QUEUED)
    first = api.post(f"{RUNS}{run.pk}/cancel/")
    assert (first.status_code, first.json()["status"]) == (202, "cancelled")
    second = api.post(f"{RUNS}{run.pk}/cancel/")
    assert (second.status_code, "cancelled" in second.json()["detail"]) == (409, True)


def test_a_finished_run_is_extended_by_another(api: APIClient, run: PlanRun, plan: Plan) -> None:
    answer = answered(api.post(f"{RUNS}{run.pk}/extend/", {"seconds": 9}), 202)
    longer = api.get(answer.headers["Location"]).json()
    assert (longer["continues"], longer["status"]) == (run.pk, "queued")
    assert longer["options"]["time_limit_s"] == 9
    unfinished = answered(api.post(f"{RUNS}{longer['id']}/extend/", {"seconds": 9}), 409)
    assert "only one that has ended is extended" in unfinished.json()["detail"]
    assert api.post(f"{RUNS}{run.pk}/extend/", {"second": 9}).status_code == 400
    assert api.post(f"{RUNS}{run.pk}/extend/", {"seconds": 0}).status_code == 400


def test_incumbents_are_listed_oldest_first_with_their_gap(api: APIClient, plan: Plan) -> None:
    rows = api.get(f"{RUNS}{plan.run_id}/incumbents/").json()["results"]
    flows = [row["flow_tokens_per_s"] for row in rows]
    assert flows == sorted(flows)
    assert rows[-1]["gap"] == pytest.approx(
        1 - rows[-1]["flow_tokens_per_s"] / rows[-1]["upper_bound_tokens_per_s"]
    )
    assert set(rows[-1]["placement"]) <= {"tower", "laptop", "mini"}


def test_a_plan_is_a_document_that_reads_back(api: APIClient, plan: Plan) -> None:
    assert api.get(f"{RUNS}{plan.run_id}/").json()["plan"] == plan.pk
    shown = api.get(f"/api/v1/plans/{plan.pk}/").json()
    assert plan_from_dict(shown["document"]).flow.value_tokens_per_s == shown["flow_tokens_per_s"]
    (listed,) = api.get("/api/v1/plans/", {"cluster": shown["cluster"]}).json()["results"]
    assert "document" not in listed


def test_figures_of_a_plan_are_served_by_name(api: APIClient, plan: Plan) -> None:
    for name in ("flow", "layers", "utilisation"):
        figure = api.get(f"/api/v1/plans/{plan.pk}/figures/{name}/").json()
        assert figure["data"]
        assert figure["summary"]
    missing = answered(api.get(f"/api/v1/plans/{plan.pk}/figures/sunburst/"), 404)
    assert "use one of: flow, layers, utilisation" in missing.json()["detail"]
