"""From a plan to nodes that run it, over the doors that agents and the coordinator use."""

from datetime import datetime
from typing import Any

import pytest
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.deployment import tasks
from helixweb.deployment.models import Deployment, Status
from helixweb.deployment.settling import (
    NodeReport,
    settle,
    verdict_in_service,
    verdict_while_stopping,
)
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Change, Cluster, Node
from helixweb.inventory.services import joining, records
from planner.serialization import problem_from_dict
from planner.timing import layer_times_of
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, denied, fresh, statements
from tests.helixweb.process_doubles import STATS, FakeCluster, make_plan, served

pytestmark = pytest.mark.usefixtures("time_stands_still")

WAKE_EVENT = "desired"


def deploy(joined: FakeCluster, api: APIClient, **options: Any) -> Deployment:
    answer = answered(api.post("/api/v1/deployments/", {"plan": joined.plan.pk, **options}), 202)
    assert answer["Location"].endswith(f"/api/v1/deployments/{answer.json()['id']}/")
    return Deployment.unscoped.get(pk=answer.json()["id"])


def test_deploying_pausing_and_stopping_is_logged(joined: FakeCluster, api: APIClient) -> None:
    deployment = deploy(joined, api, theta=2.0)
    where = f"/api/v1/deployments/{deployment.pk}"
    for what in ("pause", "resume", "stop"):
        answer = api.post(f"{where}/{what}/", headers={"X-Change-Comment": what})
        assert answer.status_code in (200, 202), answer.content
    lines = Change.unscoped.filter(kind="deployment", row_id=deployment.pk).order_by("pk")
    assert [(line.action, line.comment) for line in lines] == [
        ("added", ""), ("changed", "pause"), ("changed", "resume"), ("changed", "stop"),
    ]  # fmt: skip
    assert {(line.actor, line.cluster_id) for line in lines} == {("ada", joined.cluster.pk)}
    made, paused, _resumed, stopped = lines
    assert made.before is None
    assert (made.after["plan_id"], made.after["theta"]) == (joined.plan.pk, 2.0)
    assert (paused.before, paused.after) == ({"paused": False}, {"paused": True})
    assert stopped.after["status"] == "stopping"


def test_a_plan_is_ready_when_its_nodes_have_loaded(joined: FakeCluster, api: APIClient) -> None:
    room = {"max_layers": 80}
    for profile in joined.plan.problem["compute_profiles"].values():
        profile["memory"] = {"first": room, "last": room, "both": room, "reserve_bytes": 7.5}
    joined.plan.save()
    deployment = deploy(joined, api, max_queued_requests=3)
    placement = joined.plan.document["placement"]
    problem = problem_from_dict(joined.plan.problem)
    for name, agent in joined.used_agents.items():
        state = agent.desired()
        assert state.generation == deployment.generation == 1
        assert [state.assignment.first, state.assignment.end] == placement[name]
        assert state.assignment.checkpoint == "/models/tiny-llama"
        assert state.assignment.layer_times == layer_times_of(problem, name)
        assert state.assignment.reserve_bytes == 8
        others = {peer.name for peer in state.assignment.peers}
        assert others == (set(placement) - {name}) | {"coordinator"}
        agent.beat(Phase.LOADING, generation=1, message="reading weights", loaded_ratio=0.5)
    plan = joined.coordinator.plan
    assert plan.placement.as_lists() == placement
    assert plan.max_queued_requests == 3
    assert plan.max_context_tokens == joined.model.max_context_tokens
    assert {peer.name for peer in plan.peers} == set(placement)
    shown = api.get(f"/api/v1/deployments/{deployment.pk}/").json()
    assert shown["status"] == "deploying"
    assert {row["loaded_ratio"] for row in shown["assignments"]} == {0.5}

    *early, last = joined.used_agents.values()
    for agent in early:
        agent.beat(Phase.READY, generation=1)
    assert api.get(f"/api/v1/deployments/{deployment.pk}/").json()["status"] == "deploying"
    last.beat(Phase.READY, generation=1)
    shown = api.get(f"/api/v1/deployments/{deployment.pk}/").json()
    assert shown["status"] == "ready"
    assert shown["ready_at"] is not None
    assert shown["assignments"][0]["stats"]["kv_pages_used"] == STATS.kv_pages_used
    phases = Event.objects.filter(topic=deployment.topic, type="node-phase")
    assert phases.filter(data__phase="ready").count() == len(placement)


@pytest.fixture
def other(joined: FakeCluster, user: Any, tiny_problem: dict[str, Any]) -> FakeCluster:
    """One more cluster like it."""
    document = {**tiny_problem, "name": "other"}
    return FakeCluster(import_problem(problem_from_dict(document)), user)


def test_what_keeps_one_deployment_from_being_tended_does_not_keep_the_others(
    joined: FakeCluster, other: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = [joined.deploy().pk, other.deploy().pk]
    tended: list[int] = []

    def repair(deployment: Deployment, *, now: datetime) -> None:
        tended.append(deployment.pk)
        raise ArithmeticError(f"of deployment {deployment.pk}")

    monkeypatch.setattr(tasks, "repair", repair)
    with pytest.raises(ExceptionGroup) as raised:
        tasks.tend_deployments()
    assert sorted(tended) == deployed
    said = {str(error) for error in raised.value.exceptions}
    assert said == {f"of deployment {pk}" for pk in deployed}


def test_tending_idle_deployments_costs_few_queries(
    joined: FakeCluster, other: FakeCluster
) -> None:
    def costs() -> int:
        tasks.tend_deployments()  # reads plans, which are kept
        return len(statements(tasks.tend_deployments))

    served(joined)
    alone = costs()
    other.deploy()
    other.ready()
    assert set(Deployment.unscoped.values_list("status", flat=True)) == {"ready"}
    assert costs() == alone <= 8


def test_what_a_node_says_of_an_older_generation_changes_nothing(joined: FakeCluster) -> None:
    served(joined)
    second = joined.deploy()
    agent = joined.agents["tower"]
    assert agent.beat(Phase.READY, generation=1) == second.generation == 2
    assignment = second.assignments.get(node_name="tower")
    assert (assignment.phase, assignment.observed_generation) == ("idle", 0)
    joined.ready()
    assert fresh(second).status == Status.DEPLOYING


def test_a_failed_node_fails_the_deployment_until_it_recovers(joined: FakeCluster) -> None:
    deployment = served(joined)
    joined.agents["laptop"].beat(
        Phase.FAILED, generation=1, message="tensor model.norm.weight is missing; download again"
    )
    assert fresh(deployment).status == Status.FAILED
    assert deployment.message == "laptop: tensor model.norm.weight is missing; download again"
    joined.agents["laptop"].beat(Phase.READY, generation=1)
    assert (fresh(deployment).status, deployment.message) == (Status.READY, "")


def test_a_node_that_is_removed_fails_the_deployment(joined: FakeCluster, api: APIClient) -> None:
    deployment = served(joined)
    assert api.delete(f"/api/v1/nodes/{joined.agents['mini'].row.pk}/").status_code == 204
    tasks.tend_deployments()
    assert fresh(deployment).status == Status.FAILED
    assert "mini was removed" in deployment.message
    assert deployment.assignments.filter(node_name="mini", node=None).exists()


def test_a_stop_has_all_nodes_let_go_even_silent_ones(joined: FakeCluster, api: APIClient) -> None:
    deployment = served(joined)
    Event.objects.filter(type=WAKE_EVENT).delete()
    answer = answered(api.post(f"/api/v1/deployments/{deployment.pk}/stop/"), 202)
    assert answer.json()["status"] == "stopping"
    assert joined.coordinator.desired().plan is None
    state = joined.agents["tower"].desired()
    assert (state.generation, state.assignment) == (2, None)
    assert Event.objects.filter(type=WAKE_EVENT).count() == len(joined.agents) + 1

    for name in ("tower", "laptop"):
        joined.agents[name].beat(Phase.STOPPING, generation=2)
        joined.agents[name].beat(Phase.IDLE, generation=2)
    assert fresh(deployment).status == Status.STOPPING
    joined.silence("mini")
    tasks.tend_deployments()
    assert fresh(deployment).status == Status.STOPPED
    denied(api.post(f"/api/v1/deployments/{deployment.pk}/stop/"), 409, "is stopped")


def test_a_process_that_moved_gives_everybody_a_new_generation(joined: FakeCluster) -> None:
    deployment = served(joined)
    joined.agents["tower"].move("tcp://127.0.0.1:7001")
    assert fresh(deployment).generation == 1, "the same address again is no news"
    joined.agents["tower"].move("tcp://127.0.0.1:7999")
    assert (fresh(deployment).generation, deployment.follows_generation) == (2, 1)
    assert deployment.status == Status.DEPLOYING
    assert joined.agents["laptop"].desired().continues
    assignment = joined.agents["laptop"].desired().assignment
    endpoints = {peer.name: peer.endpoint for peer in assignment.peers}
    assert endpoints["tower"] == "tcp://127.0.0.1:7999"
    assert assignment.generation == 2
    joined.bring_up(deployment)


def test_editing_the_model_does_not_reach_what_serves(joined: FakeCluster, api: APIClient) -> None:
    deployment = served(joined)
    model = joined.model
    model.name, model.checkpoint, model.max_context_tokens = "renamed", "/elsewhere", 7
    model.save()
    joined.agents["tower"].move("tcp://127.0.0.1:7999")  # a new generation is ordered
    assert fresh(deployment).generation == 2
    for agent in joined.used_agents.values():
        assignment = agent.desired().assignment
        assert assignment.checkpoint == "/models/tiny-llama"
        assert assignment.max_context_tokens == 2048
    plan = joined.coordinator.plan
    assert (plan.model_name, plan.checkpoint) == ("tiny-llama", "/models/tiny-llama")
    shown = api.get(f"/api/v1/deployments/{deployment.pk}/").json()
    assert (shown["model_name"], shown["checkpoint"]) == ("tiny-llama", "/models/tiny-llama")


def test_a_lost_node_degrades_until_it_is_heard_again(joined: FakeCluster, browser: Client) -> None:
    deployment = served(joined)
    name, agent = next(iter(joined.used_agents.items()))
    joined.silence(name)
    tasks.tend_deployments()
    assert (fresh(deployment).status, deployment.message) == (Status.DEGRADED, f"node {name} lost")
    assert agent.desired().assignment is not None, "it stays what the node shall run"
    page = browser.get(f"/deployments/{deployment.pk}/").content.decode()
    assert f"The agent of {name} is silent; its stage may serve on" in page
    assert f"node {name} lost" in browser.get("/").content.decode()
    agent.beat(Phase.READY, generation=deployment.generation)
    assert (fresh(deployment).status, deployment.message) == (Status.READY, "")


def test_many_lost_nodes_cost_no_more_queries_than_one(joined: FakeCluster) -> None:
    deployment = served(joined)
    queries = []
    for name in joined.used_agents:
        joined.silence(name)
        settle(deployment.pk, now=timezone.now())  # notes the loss
        queries.append(len(statements(lambda: settle(deployment.pk, now=timezone.now()))))
    assert len(queries) > 1
    assert len(set(queries)) == 1


def test_a_removed_node_that_is_declared_again_holds_nothing_up(joined: FakeCluster) -> None:
    deployment = served(joined)
    records.delete(joined.agents["mini"].row)
    records.create(Node, cluster=joined.cluster, name="mini", region="away", profile_name="small")
    joined.agents["tower"].move("tcp://127.0.0.1:7999")
    settle(deployment.pk, now=timezone.now())
    assert fresh(deployment).status == Status.FAILED
    assert "mini was removed" in deployment.message


def test_a_node_that_was_removed_and_joined_serves_again(joined: FakeCluster, user: Any) -> None:
    deployment = served(joined)
    mini = joined.agents["mini"]
    records.delete(mini.row)
    mini.http.credentials()
    mini.join(joining.create_join_token(joined.cluster, "node", user).secret)
    assert (fresh(deployment).generation, deployment.status) == (2, Status.DEPLOYING)
    assert mini.desired().assignment is not None
    joined.bring_up(deployment)


def test_a_heartbeat_without_news_costs_few_queries(
    joined: FakeCluster, django_assert_max_num_queries: Any
) -> None:
    """With 42 nodes there are 21 a second; none of them may read what all the others run."""
    served(joined)
    with django_assert_max_num_queries(10):  # four of them savepoints
        joined.agents["tower"].beat(Phase.READY, generation=1)


def test_deploying_names_obstacles_with_remedy(cluster: Cluster, user: Any, api: APIClient) -> None:
    plan = make_plan(cluster)
    answer = answered(api.post("/api/v1/deployments/", {"plan": plan.pk}), 409)
    detail = answer.json()["detail"]
    assert "Model tiny-llama has no checkpoint; set the path" in detail
    contains(detail, "Node tower has not joined; run the join command", "No coordinator has joined")
    assert not Deployment.unscoped.exists()

    joined = FakeCluster(cluster, user)
    joined.silence("tower")
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    assert answer.json()["detail"] == "Node tower is silent; start its agent again."
    Node.unscoped.filter(name="tower").delete()
    answer = api.post("/api/v1/deployments/", {"plan": joined.plan.pk})
    assert "Node tower is not in the cluster any more" in answer.json()["detail"]


def test_two_deployments_at_once_leave_one(joined: FakeCluster) -> None:
    """The loser of the race sees the winner's row only through the database's constraints."""
    loser = joined.deploy()
    loser.pk, loser.generation = None, loser.generation + 1
    with pytest.raises(IntegrityError, match=r"(?i)unique"):
        loser.save()


def test_the_timeline_shows_how_each_node_became_ready(joined: FakeCluster, api: APIClient) -> None:
    deployment = joined.deploy()
    for agent in joined.used_agents.values():
        agent.beat(Phase.LOADING, generation=1)
    joined.bring_up(deployment)
    chart = api.get(f"/api/v1/deployments/{deployment.pk}/timeline/").json()
    assert "All 3 nodes were ready after" in chart["summary"]
    phases = [row[1] for row in chart["rows"] if row[0] == "tower"]
    assert phases == ["waiting", "loading", "ready"]
    assert [trace["name"] for trace in chart["data"]] == ["waiting", "loading", "ready"]


def test_what_is_stored_of_a_node_does_not_grow_with_the_others(joined: FakeCluster) -> None:
    deployment = joined.deploy()
    assert all(row.desired["peers"] == [] for row in deployment.assignments.all())


def test_a_deployment_is_ready_if_a_coordinator_says(joined: FakeCluster, api: APIClient) -> None:
    deployment = joined.deploy()

    def told() -> tuple[str, str]:
        deployment.refresh_from_db()
        return deployment.status, deployment.message

    for agent in joined.used_agents.values():
        agent.coordinator = None
        agent.beat(Phase.READY, generation=1)
    assert told() == ("deploying", "coordinator front has not taken up the plan yet")
    waits = "waiting for the stages of: laptop"
    joined.coordinator.report(serving=False, message=waits)
    assert told() == ("deploying", waits)
    joined.coordinator.report(coming_generation=1, coming_missing=("laptop",))
    assert told() == ("deploying", waits)
    joined.coordinator.report()
    assert told() == ("ready", "")
    cut = "tower cannot reach laptop at 127.0.0.1:7002"
    joined.coordinator.report(serving=False, message=cut)
    assert told() == ("degraded", cut)
    assert api.get(f"/api/v1/deployments/{deployment.pk}/").json()["message"] == cut


def report(
    phase: Phase | None, *, removed: bool = False, lost: bool = False, message: str = ""
) -> NodeReport:
    return NodeReport(name="a", phase=phase, message=message, removed=removed, lost=lost)


@pytest.mark.parametrize(
    ("reports", "status"),
    [
        ([report(Phase.READY), report(Phase.READY)], Status.READY),
        ([report(Phase.READY), report(Phase.LOADING)], Status.DEPLOYING),
        ([report(Phase.READY), report(None)], Status.DEPLOYING),
        ([report(Phase.READY), report(Phase.IDLE)], Status.DEPLOYING),
        ([report(Phase.READY), report(Phase.FAILED)], Status.FAILED),
        ([report(Phase.READY), report(Phase.READY, removed=True)], Status.FAILED),
        ([report(Phase.READY), report(Phase.READY, lost=True)], Status.DEGRADED),
        ([report(Phase.LOADING), report(Phase.READY, lost=True)], Status.DEPLOYING),
    ],
)
def test_a_deployment_is_what_its_worst_node_is(reports: list[NodeReport], status: Status) -> None:
    assert verdict_in_service(reports).status is status


@pytest.mark.parametrize(
    ("reports", "status"),
    [
        ([report(Phase.IDLE), report(Phase.IDLE)], Status.STOPPED),
        ([report(Phase.IDLE), report(Phase.STOPPING)], Status.STOPPING),
        ([report(Phase.IDLE), report(None)], Status.STOPPING),
        ([report(Phase.IDLE), report(None, lost=True)], Status.STOPPED),
        ([report(Phase.IDLE), report(None, removed=True)], Status.STOPPED),
    ],
)
def test_a_stop_ends_when_all_nodes_are_idle(reports: list[NodeReport], status: Status) -> None:
    assert verdict_while_stopping(reports).status is status
