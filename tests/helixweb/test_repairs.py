"""A node is lost or joins: another placement is looked for, and deployed as the cluster says."""

from dataclasses import replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common import jobs
from helixweb.deployment.models import Deployment, Repair, Status
from helixweb.deployment.services import losses, repairing
from helixweb.deployment.services.deploying import roll_back
from helixweb.inventory.models import Change, Cluster, LanguageModel, Node, Replanning
from helixweb.inventory.services.records import create, update
from helixweb.planning.models import PlanRun
from helixweb.planning.stored import stored_plan
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, denied, shows
from tests.helixweb.process_doubles import HEARD, FakeAgent, FakeCluster, planned
from tests.helixweb.recorded import recorded

# A search has a thread that looks into the database as well.
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("time_stands_still", "short_searches"),
]
State = Repair.State


class Repaired:
    """A cluster that serves, under a policy; `beat` is what the task does every two seconds."""

    def __init__(self, cluster: Cluster, user: Any, policy: Replanning) -> None:
        Cluster.unscoped.filter(pk=cluster.pk).update(replanning=policy)
        self.cluster = FakeCluster(cluster, user)
        self.user = user
        self.lost: dict[str, str] = {}
        self.now = timezone.now()
        self.deployment = self.cluster.deploy(max_queued_requests=7)
        self.cluster.ready()

    @property
    def rows(self) -> list[Repair]:
        return list(Repair.unscoped.order_by("pk"))

    @property
    def states(self) -> list[str]:
        return [row.state for row in self.rows]

    @property
    def serving(self) -> Deployment:
        return Deployment.unscoped.exclude(status=Status.SUPERSEDED).get()

    def beat(self, *, after_s: float = 0.0) -> list[str]:
        self.now += timedelta(seconds=after_s)
        repairing.repair(self.serving, now=self._heard_now(self.now))
        return self.states

    def serve(self, *names: str) -> None:
        """These nodes have loaded their layers of what serves."""
        for name in names:
            self.cluster.agents[name].beat(Phase.READY, generation=self.serving.generation)

    def search(self) -> None:
        """What a worker does meanwhile."""
        run = self.rows[-1].run
        assert run is not None
        jobs.attempt_job(run)

    def lose(self, name: str) -> None:
        """Its agent and its stage."""
        self.cluster.silence(name)
        self.lost[name] = "its process has ended"
        self.report()

    def report(self, **changes: Any) -> None:
        """What the coordinator says of the deployment that serves."""
        generation = self.serving.generation
        self.cluster.coordinator.report(generation=generation, lost_nodes=self.lost, **changes)

    def until_searched(self) -> None:
        self.beat()
        self.beat(after_s=repairing.WAITS_S)
        self.search()

    def until_offered_or_done(self) -> list[str]:
        self.until_searched()
        return self.beat()

    def _heard_now(self, now: datetime) -> datetime:
        """Agents that are not silent were heard of just now, however far the clock was moved."""
        fresh = Node.unscoped.filter(last_seen_at__gt=timezone.now() - timedelta(seconds=30))
        fresh.update(last_seen_at=now)
        return now


@pytest.fixture
def asking(cluster: Cluster, user: Any) -> Repaired:
    return recorded(lambda: Repaired(cluster, user, Replanning.ASK))


@pytest.fixture
def automatic(cluster: Cluster, user: Any) -> Repaired:
    return recorded(lambda: Repaired(cluster, user, Replanning.AUTOMATIC))


def test_a_cluster_keeps_the_policy_that_was_chosen_and_is_automatic_otherwise() -> None:
    assert create(Cluster, name="new").replanning == Replanning.AUTOMATIC
    untouched = create(Cluster, name="untouched", replanning=Replanning.ASK)
    chosen = create(Cluster, name="chosen", replanning=Replanning.NEVER)
    update(chosen, replanning=Replanning.ASK)
    update(untouched, mean_prompt_tokens=99.0)

    import_module("helixweb.inventory.migrations.0002_since_0_1_0").make_automatic(apps, None)
    untouched.refresh_from_db()
    chosen.refresh_from_db()
    assert (untouched.replanning, chosen.replanning) == ("automatic", "ask")
    line = untouched.changes.first()
    assert (line.before, line.after) == ({"replanning": "ask"}, {"replanning": "automatic"})


def test_a_lost_node_is_planned_around_and_that_offered(asking: Repaired, browser: Client) -> None:
    asking.lose("tower")
    assert asking.beat() == [State.COMPUTING], "nothing serves, so the search begins at once"
    assert asking.beat() == [State.COMPUTING]
    asking.search()
    assert asking.beat() == [State.OFFERED]
    row = asking.rows[0]
    assert row.lost == ["tower"]
    assert row.added == []
    assert row.flow_tokens_per_s is not None
    assert row.flow_tokens_per_s > 1.05 * (row.unmoved_tokens_per_s or 0.0)
    page = browser.get(f"/deployments/{asking.deployment.pk}/").content.decode()
    contains(page, "Lost: tower;", "Deploy this placement")
    assert asking.serving == asking.deployment, "it was only offered"

    answer = answered(browser.post(f"/repairs/{row.pk}/deploy", follow=True), 200)
    serving = asking.serving
    assert answer.redirect_chain[-1][0] == f"/deployments/{serving.pk}/"
    assert "tower" not in serving.plan.document["placement"]
    assert serving.max_queued_requests == 7, "with the options it had"
    assert serving.created_by == asking.user
    assert asking.states == [State.DEPLOYED]


def test_a_plan_is_repaired_by_its_own_objective(asking: Repaired, browser: Client) -> None:
    joined = asking.cluster
    joined.plan = planned(
        joined.cluster, joined.model, joined.plan.problem, objective="decode", time_limit_s=1.0
    )
    asking.deployment = joined.deploy()
    joined.ready(generation=asking.deployment.generation)
    asking.lose("tower")
    assert asking.until_offered_or_done() == [State.OFFERED]
    (row,) = asking.rows
    assert row.run.options["objective"] == "decode"
    unmoved, found = row.values
    assert (unmoved, row.unmoved_tokens_per_s) == (0.0, 0.0), "nothing serves"
    assert row.run.objective_value is not None
    assert 0 < found < (row.flow_tokens_per_s or 0.0)
    page = browser.get(f"/deployments/{asking.deployment.pk}/").content.decode()
    assert f"Another placement brings {found:,.3g} decode tokens/s" in page
    browser.post(f"/repairs/{row.pk}/deploy")
    forecast = stored_plan(asking.serving.plan).forecast
    assert forecast.objective == "decode"


@pytest.mark.parametrize("policy", Replanning)
def test_pages_say_what_is_done_while_nothing_serves(
    cluster: Cluster, user: Any, browser: Client, policy: Replanning
) -> None:
    here = recorded(lambda: Repaired(cluster, user, policy))

    def shown(pk: int) -> list[str]:
        texts = [browser.get(path).content.decode() for path in ("/", f"/deployments/{pk}/")]
        return [text.partition('id="outage"')[2] for text in texts]

    assert shown(here.deployment.pk) == ["", ""]
    here.cluster.silence("tower")
    assert shown(here.deployment.pk) == ["", ""], "its stage may serve on"
    here.lose("tower")
    here.report(requests_waiting=3)
    here.until_offered_or_done() if policy != Replanning.NEVER else here.beat()
    says = {
        Replanning.AUTOMATIC: "0 of 2 nodes have loaded their layers",
        Replanning.ASK: "Deploy this placement",
        Replanning.NEVER: f'href="/plans/by-id/{here.cluster.plan.pk}/replan"',
    }
    for text in shown(here.serving.pk):
        contains(text, "Lost: tower;", "3 requests wait.", says[policy])
    if policy == Replanning.AUTOMATIC:
        here.serve("laptop", "mini")
        assert shown(here.serving.pk) == ["", ""]


def test_with_the_policy_automatic_it_is_deployed_once(automatic: Repaired) -> None:
    automatic.lose("tower")
    assert automatic.until_offered_or_done() == [State.DEPLOYED]
    serving = automatic.serving
    assert serving.pk != automatic.deployment.pk
    assert serving.created_by is None
    assert "tower" not in serving.plan.document["placement"]
    automatic.serve("laptop", "mini")
    assert automatic.beat(after_s=60.0) == [State.DEPLOYED]
    assert automatic.serving == serving
    line = Change.unscoped.get(kind="deployment", row_id=serving.pk, action="added")
    assert (line.actor, line.actor_kind) == ("", "site"), "no person did it, and it is told"
    ended = Change.unscoped.filter(row_id=automatic.deployment.pk, kind="deployment").first()
    assert ended.after == {"status": "superseded"}


def test_a_placement_that_cannot_be_deployed_says_why(automatic: Repaired, browser: Client) -> None:
    automatic.lose("tower")
    automatic.until_searched()
    LanguageModel.objects.update(checkpoint="")
    assert automatic.beat() == [State.FAILED]
    assert "has no checkpoint" in automatic.rows[0].why
    assert automatic.serving == automatic.deployment
    shows(browser.get(f"/deployments/{automatic.deployment.pk}/"), "has no checkpoint")


class _Killed(BaseException):
    """The worker is no more."""


def test_a_killed_worker_is_replaced(automatic: Repaired, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args: Any, **options: Any) -> None:
        raise _Killed

    automatic.lose("tower")
    automatic.until_searched()
    runs = PlanRun.unscoped.count()
    with monkeypatch.context() as dying:
        dying.setattr(repairing, "deploy", die)
        with pytest.raises(_Killed):
            automatic.beat()
    assert automatic.states == [State.COMPUTING]
    assert PlanRun.unscoped.count() == runs
    assert automatic.beat() == [State.DEPLOYED]
    assert automatic.serving != automatic.deployment


def test_of_workers_that_look_after_a_deployment_one_does_each_thing(asking: Repaired) -> None:
    now, deployment = asking.now, asking.deployment
    asking.lose("tower")
    repairing._notice(deployment, losses.Changed(lost=("tower",), added=()), now=now)
    assert repairing._notice(deployment, losses.Changed(lost=("mini",), added=()), now=now) is None
    assert asking.states == [State.WAITING], "while one change is dealt with no other is"

    for row in [*asking.rows, *asking.rows]:
        repairing._search(deployment, row, seconds=0.3)
    assert PlanRun.unscoped.count() == 1
    asking.search()
    mine, theirs = asking.rows[0], asking.rows[0]
    repairing._conclude(deployment, mine, policy=Replanning.ASK, now=now)
    runs = PlanRun.unscoped.count()
    repairing._conclude(deployment, theirs, policy=Replanning.ASK, now=now)
    assert asking.states == [State.OFFERED]
    assert PlanRun.unscoped.count() == runs


def test_the_node_that_was_planned_around_is_taken_in_again(automatic: Repaired) -> None:
    automatic.lose("tower")
    automatic.until_offered_or_done()
    automatic.serve("laptop", "mini")
    tower: FakeAgent = automatic.cluster.agents["tower"]
    tower.beat(Phase.IDLE, generation=automatic.serving.generation)
    assert automatic.beat() == [State.DEPLOYED, State.WAITING], "the others serve meanwhile"
    automatic.until_offered_or_done()
    assert automatic.states == [State.DEPLOYED, State.DEPLOYED]
    assert automatic.rows[1].added == ["tower"]
    assert "tower" in automatic.serving.plan.document["placement"]


def test_a_roll_back_stays_until_something_else_changes(automatic: Repaired) -> None:
    def serve(*names: str) -> None:
        automatic.serve(*names)
        automatic.report()

    automatic.lose("tower")
    automatic.until_offered_or_done()
    without_tower = automatic.serving.plan
    automatic.lost.clear()
    serve("laptop", "mini")
    automatic.cluster.agents["tower"].beat(Phase.IDLE, generation=automatic.serving.generation)
    automatic.until_offered_or_done()
    serve("laptop", "mini", "tower")
    assert "tower" in automatic.serving.plan.document["placement"]

    roll_back(automatic.serving, user=automatic.user, now=timezone.now())
    serve("laptop", "mini")
    automatic.cluster.agents["tower"].beat(Phase.IDLE, generation=automatic.serving.generation)
    before = automatic.states
    assert automatic.beat(after_s=60.0) == before, "the tower is there, and was left on purpose"
    assert automatic.serving.plan == without_tower
    automatic.lose("mini")
    assert automatic.beat()[:-1] == before
    assert (automatic.rows[-1].lost, automatic.rows[-1].added) == (["mini"], ["tower"])


def test_a_node_that_is_back_in_time_costs_nothing(asking: Repaired) -> None:
    assert asking.beat() == [], "all is well"
    asking.lose("tower")
    assert asking.beat() == [State.COMPUTING]
    asking.cluster.agents["tower"].beat(Phase.READY, generation=1)
    asking.lost.clear()
    asking.report()
    assert asking.beat(after_s=repairing.WAITS_S) == [State.OVERTAKEN]
    asking.lose("tower")
    assert asking.beat() == [State.OVERTAKEN, State.COMPUTING], "another time is another case"


def test_a_deployment_is_served_while_a_pipeline_leads_around_losses(asking: Repaired) -> None:
    twice = replace(
        stored_plan(asking.deployment.plan),
        routing_weights={
            "source": {"tower": 1.0, "mini": 1.0},
            "tower": {"laptop": 1.0},
            "laptop": {"sink": 1.0},
            "mini": {"sink": 1.0},
        },
    )
    assert losses.is_served(twice, without=["mini"])
    assert losses.is_served(twice, without=["tower", "laptop"])
    assert not losses.is_served(twice, without=["laptop", "mini"])


def test_layers_stay_while_an_agent_may_start_its_stage_again(automatic: Repaired) -> None:
    nodes = dict.fromkeys(automatic.cluster.used_agents, HEARD)
    nodes["tower"] = HEARD.model_copy(update={"ready": False})
    automatic.lost["tower"] = "its process has ended"
    automatic.report(nodes=nodes)
    assert automatic.beat() == [State.COMPUTING]
    automatic.search()
    assert automatic.beat(after_s=repairing.WAITS_S / 2) == [State.COMPUTING]
    assert automatic.beat(after_s=repairing.WAITS_S / 2) == [State.DEPLOYED], "it had its time"


def test_a_failed_search_gets_longer(automatic: Repaired, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "SHORT_SEARCH_S", 0.1)
    automatic.lose("tower")
    automatic.beat()
    PlanRun.unscoped.filter(repair__isnull=False).update(status=PlanRun.Status.FAILED)
    assert automatic.beat() == [State.COMPUTING]
    run = automatic.rows[0].run
    assert run.options["time_limit_s"] == repairing.SEARCH_S
    automatic.search()
    assert automatic.beat(after_s=repairing.WAITS_S) == [State.DEPLOYED]


def test_an_agent_told_to_end_has_time_to_return(automatic: Repaired, settings: Any) -> None:
    agent = automatic.cluster.used_agents["tower"]
    leaving = {"observed": {"generation": 1, "phase": "ready"}, "leaving": True}
    assert agent.http.post("/api/v1/agent/heartbeat", leaving).status_code == 200
    automatic.lose("tower")  # the clock of these tests is moved by hand
    assert automatic.beat() == [State.WAITING]
    missed_after_s = settings.HELIX_NODE_LOST_AFTER_S
    assert automatic.beat(after_s=missed_after_s) == [State.WAITING], "it may be a restart"
    assert automatic.beat(after_s=repairing.WAITS_S) == [State.COMPUTING]


def test_a_dismissed_placement_is_not_offered_again(asking: Repaired, browser: Client) -> None:
    asking.lose("tower")
    assert asking.until_offered_or_done() == [State.OFFERED]
    browser.post(f"/repairs/{asking.rows[0].pk}/dismiss")
    assert asking.beat(after_s=60.0) == [State.DISMISSED]
    line = Change.unscoped.filter(kind="deployment").first()
    assert (line.actor, line.before, line.after) == (
        "ada",
        {"repair": "offered"},
        {"repair": "dismissed"},
    )
    shows(browser.get(f"/deployments/{asking.deployment.pk}/"), "dismissed")
    answer = browser.post(f"/repairs/{asking.rows[0].pk}/deploy", follow=True)
    assert "offers nothing any more" in answer.content.decode()


def test_a_cluster_that_cannot_hold_the_model_says_so(asking: Repaired, browser: Client) -> None:
    asking.lose("tower")
    asking.lose("mini")
    asking.beat()
    asking.beat(after_s=repairing.WAITS_S)
    if asking.rows[0].run is not None:
        asking.search()
    assert asking.beat() == [State.FAILED]
    assert asking.rows[0].why
    page = browser.get(f"/deployments/{asking.deployment.pk}/").content.decode()
    assert "No better placement could be deployed" in page


def test_scripts_see_and_decide_too(asking: Repaired, api: APIClient) -> None:
    asking.lose("tower")
    asking.until_offered_or_done()
    (row,) = api.get(f"/api/v1/repairs/?deployment={asking.deployment.pk}").json()["results"]
    assert (row["state"], row["lost"], row["added"]) == ("offered", ["tower"], [])
    deployed = answered(api.post(f"/api/v1/repairs/{row['id']}/deploy/"), 202)
    assert deployed["Location"].endswith(f"/api/v1/deployments/{deployed.json()['id']}/")
    denied(api.post(f"/api/v1/repairs/{row['id']}/dismiss/"), 409, "offers nothing any more")


@pytest.mark.parametrize("value", ["flow_tokens_per_s", "objective_value"])
def test_of_answers_with_nearly_the_most_value_the_one_of_fewest_bytes_is_taken(value: str) -> None:
    def point(most: float, moved: float) -> dict[str, float]:
        return {"flow_tokens_per_s": 100.0, value: most, "moved_bytes": moved}

    assert repairing.chosen_answer([point(10.0, 0.0)]) == 0
    assert repairing.chosen_answer([point(50.0, 0.0), point(91.0, 5.0), point(100.0, 50.0)]) == 1
    assert repairing.chosen_answer([point(50.0, 0.0), point(89.0, 5.0), point(100.0, 50.0)]) == 2
