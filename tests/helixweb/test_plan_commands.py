"""Plan runs and plans over REST, and commands that go on from a plan: extend, replan, adopt,
what-if, simulate; and `api`."""

import json
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from helixweb.command_line import exit_codes
from helixweb.common import jobs
from helixweb.inventory.models import Change, Cluster, LanguageModel, Link, Node
from helixweb.planning.models import Explanation, Plan, PlanRun, Simulation
from helixweb.planning.services.studies import forecast_to_json
from planner.placers.board import Score
from planner.replanning.answers import ReplanPoint
from planner.serialization import plan_from_dict
from tests.helixweb.looking import answered, contains, denied, fresh
from tests.helixweb.searching import claimed, end_with
from tests.helixweb.simulated_forecast import FORECAST
from tests.helixweb.site_in_process import Shell, new_key

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def shell(user: Any, plan: Plan, tmp_path: Path) -> Shell:
    shell = Shell(new_key(user), home=str(tmp_path))
    shell.sleep = lambda _: solve(plan)
    return shell


def solve(plan: Plan) -> None:
    """What a worker does while the command waits; it finds what it began with."""
    run = PlanRun.unscoped.get(status=PlanRun.Status.QUEUED)
    found = plan_from_dict(plan.document)
    flow = found.flow.value_tokens_per_s
    score = Score(flow_tokens_per_s=flow, merit=(flow,))
    points = [ReplanPoint(placement=found.placement, score=score, moved_bytes=0.0,
                          method="unmoved", elapsed_s=0.0)]  # fmt: skip
    end_with(run, claimed(run), found, points=points)


def test_a_run_is_extended_and_its_plan_told(shell: Shell, plan: Plan) -> None:
    assert shell("plan", "extend", plan.run_id, "--time-limit", 1) == 0, shell.err
    longer = PlanRun.unscoped.latest("pk")
    assert (longer.continues_id, longer.options["time_limit_s"]) == (plan.run_id, 1)
    assert f"plan   {longer.plan.pk}\n" in shell.out
    assert shell("plan", "extend", plan.run_id, "--time-limit", 0.1) == exit_codes.USAGE
    assert "greater than or equal to 1" in shell.err
    assert shell("plan", "extend", plan.run_id, "--no-wait", "--json") == 0
    queued = shell.json()["id"]
    assert shell("plan", "extend", queued) == exit_codes.CONFLICT
    assert "queued" in shell.err


def test_a_running_search_is_accepted(shell: Shell, plan: Plan) -> None:
    assert shell("plan", "extend", plan.run_id, "--no-wait", "--json") == 0
    run = PlanRun.unscoped.get(pk=shell.json()["id"])
    claimed(run)
    PlanRun.unscoped.filter(pk=run.pk).update(flow_tokens_per_s=1.0)
    assert shell("plan", "accept", run.pk) == 0, shell.err
    assert fresh(run).accept_requested
    assert shell("plan", "accept", plan.run_id) == exit_codes.CONFLICT


def test_a_plan_is_replanned_and_one_adopted(shell: Shell, plan: Plan, cluster: Cluster) -> None:
    Node.objects.create(cluster=cluster, name="tower-2", region="home", profile_name="big")
    assert shell("plan", "replan", plan.pk, "--time-limit", 1, "--budget-gb", 0.5) == 0, shell.err
    run = PlanRun.unscoped.latest("pk")
    assert run.replan.budget_bytes == 5e8
    assert shell("plan", "answers", run.pk) == 0
    assert shell.out.startswith("ANSWER")
    assert shell("plan", "adopt", run.pk, 0) == 0, shell.err
    adopted = Plan.unscoped.latest("pk")
    assert f"plan   {adopted.pk}\n" in shell.out
    assert adopted.run.replan.running_plan_id == plan.pk
    assert shell("plan", "adopt", run.pk, 99) == exit_codes.CONFLICT
    assert "no answer 99" in shell.err
    assert shell("plan", "answers", plan.run_id) == exit_codes.NOT_FOUND
    assert shell("plan", "replan", plan.pk, "--budget-gb", -1) == exit_codes.USAGE


def test_a_changed_copy_of_the_cluster_is_weighed_and_searched(shell: Shell, plan: Plan) -> None:
    changes = ("--without", "mini", "--add", 2, "big", "home", "--upgrade", "laptop", "big",
               "--link", "tower", "laptop", 10, 0.5)  # fmt: skip
    assert shell("plan", "what-if", plan.pk, *changes) == 0, shell.err
    assert "BEFORE" in shell.out
    assert shell("plan", "what-if", plan.pk, *changes, "--json") == 0
    answer = shell.json()
    assert answer["run"] is None
    assert answer["before"]["nodes_used"] >= 1
    assert shell("plan", "what-if", plan.pk, "--without", "tower", "--json") == 0, shell.err
    left = shell.json()["after"]
    assert (left["flow_tokens_per_s"], left["ttft_s"], left["tpot_s"]) == (0, None, None)
    assert shell("plan", "what-if", plan.pk, "--without", "mini", "--search", 1) == 0, shell.err
    run = PlanRun.unscoped.latest("pk")
    assert "mini" in run.what_if
    contains(shell.out, "BEFORE", f"plan   {run.plan.pk}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say what to change"),
        (("--add", "two", "big", "home"), "'two' is not allowed; give a whole number"),
        (("--link", "tower", "mini", "fast", 1), "'fast' is not allowed; give a number above 0"),
        (("--link", "tower", "mini", 1, "inf"), "'inf' is not allowed; give a number from 0 to"),
        (("--without", "ghost"), "ghost"),
        (
            ("--upgrade", "laptop", "big", "--upgrade", "laptop", "small"),
            "--upgrade names 'laptop' twice; keep one",
        ),
        (
            ("--link", "tower", "mini", 1, 1, "--link", "tower", "mini", 2, 1),
            "tower > mini has two rows; keep one",
        ),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    shell: Shell, plan: Plan, words: tuple[object, ...], said: str
) -> None:
    assert shell("plan", "what-if", plan.pk, *words) == exit_codes.USAGE
    assert said in shell.err


def test_a_plan_is_simulated(shell: Shell, plan: Plan) -> None:
    def simulate(_: float) -> None:
        Simulation.unscoped.filter(workload="poisson").update(
            status=Simulation.Status.SUCCEEDED, forecast=forecast_to_json(FORECAST)
        )

    shell.sleep = simulate
    words = ("--workload", "poisson", "--share", 0.5)
    assert shell("plan", "simulate", plan.pk, *words) == 0, shell.err
    assert Simulation.unscoped.get(workload="poisson").share == 0.5
    assert "decode      41.5 tokens/s\n" in shell.out
    contains(shell.out, "TPOT        p50 20 ms, p95 1.5 s\n", "nodes busy  75.0%")
    assert shell("plan", "simulate", plan.pk, "--workload", "flood") == exit_codes.USAGE
    assert "flood" in shell.err


def test_a_plan_is_explained_once_and_another_time_if_asked(shell: Shell, plan: Plan) -> None:
    shell.sleep = lambda _: jobs.attempt_job(Explanation.unscoped.get(plan=plan))
    Explanation.unscoped.all().delete()
    assert shell("plan", "explain", plan.pk) == 0, shell.err
    done = Explanation.unscoped.get(plan=plan).created_at
    assert shell("plan", "explain", plan.pk, "--again") == 0, shell.err
    for value in Explanation.unscoped.get(plan=plan).values:
        (line,) = (one for one in shell.out.splitlines() if one.startswith(value["resource"]))
        shown = line.removeprefix(value["resource"]).split("  ")
        expected = [f"{100 * value['gain']:+.1f} %", f"{value['kept_tokens_per_s']:,.1f}", "-"]
        assert [one.strip() for one in shown if one] == expected
    assert Explanation.unscoped.get(plan=plan).status == "succeeded"
    assert Explanation.unscoped.get(plan=plan).created_at >= done


def test_any_operation_is_asked_by_its_path(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    assert shell("api", "get", "nodes", "--query", "name=mini") == 0, shell.err
    (node,) = shell.json()["results"]
    path = f"/api/v1/nodes/{node['id']}/"
    body = json.dumps({"region": "moon"})
    assert shell("api", "PATCH", path, "--data", "-", "--comment", "für 机架", typed=body) == 0
    assert Change.unscoped.filter(kind="node").latest("pk").comment == "für 机架"
    file = tmp_path / "node.json"
    file.write_text(json.dumps({"cluster": cluster.pk, "name": "new", "region": "home"}))
    assert shell("api", "post", "/nodes/", "--data", f"@{file}") == 0, shell.err
    assert shell.json()["name"] == "new"
    link = Link.unscoped.get()
    assert shell("api", "delete", f"links/{link.pk}") == 0
    assert shell.out == ""
    assert shell("api", "delete", f"links/{link.pk}") == exit_codes.NOT_FOUND


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("get", "/nodes/?name=a"), "--query NAME=VALUE"),
        (("get", "http://elsewhere.example/nodes/"), "no path such as /nodes/"),
        (("get", "/nodes/", "--query", "name"), "'name' is not NAME=VALUE"),
        (("get", "/nodes/\x01/"), "without control characters"),
        (("get", "/nodes/", "--query", f"name={70_000 * 'x'}"), "make them shorter"),
        (("post", "/nodes/", "--data", "{"), "--data is no JSON"),
        (("post", "/nodes/", "--data", '{"region": NaN}'), "--data is no JSON"),
        (("post", "/nodes/", "--data", '{"price_per_hour": 1e999}'), "--data is no JSON"),
        (("post", "/nodes/", "--data", 100_000 * "["), "nested too deeply"),
        (("post", "/nodes/", "--comment", "two\nlines"), "give one line of text"),
        (("put", "/nodes/"), "is not allowed"),
    ],
)
def test_what_is_no_request_is_refused(
    shell: Shell, capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    assert shell("api", *words) == exit_codes.USAGE
    assert said in shell.err + capsys.readouterr().err


RUNS = "/api/v1/plan-runs/"


@pytest.fixture
def request_body(cluster: Cluster) -> dict[str, Any]:
    return {"cluster": cluster.pk, "model": LanguageModel.objects.get().pk}


@pytest.fixture
def run(api: APIClient, request_body: dict[str, Any]) -> PlanRun:
    return PlanRun.unscoped.get(pk=api.post(RUNS, request_body).json()["id"])


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


def test_shown_options_start_the_same_run(api: APIClient, request_body: dict[str, Any]) -> None:
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


def test_a_finished_run_is_extended_by_another(api: APIClient, plan: Plan) -> None:
    address = f"{RUNS}{plan.run_id}/extend/"
    answer = answered(api.post(address, {"seconds": 9}), 202)
    longer = api.get(answer.headers["Location"]).json()
    assert (longer["continues"], longer["status"]) == (plan.run_id, "queued")
    assert longer["options"]["time_limit_s"] == 9
    unfinished = answered(api.post(f"{RUNS}{longer['id']}/extend/", {"seconds": 9}), 409)
    assert "only one that has ended is extended" in unfinished.json()["detail"]
    assert api.post(address, {"second": 9}).status_code == 400
    assert api.post(address, {"seconds": 0}).status_code == 400


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
