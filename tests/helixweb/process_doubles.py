"""Agents and a coordinator as far as the web can tell: they speak the real protocol over HTTP."""

import json
import uuid
from datetime import timedelta
from functools import cache
from typing import Any

from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.deployment.models import Deployment, Status
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.services import deploying
from helixweb.deployment.settling import is_elsewhere
from helixweb.inventory.models import Cluster, Coordinator, LanguageModel, Node
from helixweb.inventory.services import joining, problems
from helixweb.monitoring.models import MetricSample
from helixweb.planning.models import Plan
from planner.domain.plan import Plan as DomainPlan
from planner.placers.base import NeverCancelled
from planner.plan_instances import plan_by_method
from planner.plan_options import PlanOptions
from planner.serialization import plan_to_dict, problem_from_dict, problem_to_dict
from runtime.protocol.control import (
    CoordinatorDesired,
    CoordinatorReport,
    DesiredState,
    NodeTraffic,
    RegisterReply,
    ServingPlan,
    StageStats,
)
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered
from tests.helixweb.recorded import recorded

HARDWARE = {
    "hostname": "host",
    "cpu_count": 2,
    "memory_bytes": 8_000_000,
    "memory_budget_bytes": 4_000_000,
}
STATS = StageStats(
    kv_pages_total=100,
    kv_pages_used=25,
    sequences=1,
    steps_total=7,
    prompt_tokens_total=64,
    decode_tokens_total=12,
    busy_s_total=0.5,
    uptime_s=3.0,
    weights_bytes=1000,
    kv_bytes=2000,
)
REPORT = CoordinatorReport(
    generation=1,
    serving=True,
    window_s=10.0,
    requests_running=1,
    requests_waiting=0,
    requests_total=3,
    requests_failed_total=0,
    requests_rejected_total=0,
    prompt_tokens_total=100,
    output_tokens_total=50,
    prompt_tokens_per_s=10.0,
    output_tokens_per_s=5.0,
    ttft_p50_s=0.2,
)
# What a coordinator tells of a node that it reaches.
HEARD = NodeTraffic(
    kv_estimate_token_layers=0.0, kv_capacity_token_layers=1.0, tokens_total=0, ready=True
)


class FakeProcess:
    """Registers with a one-time token, then speaks with its credential."""

    role = "node"

    def __init__(self, cluster: Cluster, name: str, user: Any, *, port: int) -> None:
        self.name = name
        self.port = port
        self.uuid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{cluster.name}-{name}"))
        self.identity = {
            "hardware": HARDWARE,
            "data_endpoint": f"tcp://127.0.0.1:{port}",
            "data_public_key": f"{name:k<40}"[:40],
            "version": "0.1.0",
        }
        self.http = APIClient()
        token = joining.create_join_token(cluster, self.role, user).secret
        self.join(token)

    def registration(self, token: str) -> dict[str, Any]:
        """What it sends to join."""
        who = {"role": self.role, "node_uuid": self.uuid, "name": self.name}
        return {"join_token": token, **who, **self.identity}

    def join(self, token: str) -> RegisterReply:
        answer = self.http.post("/api/v1/agent/register", self.registration(token))
        assert answer.status_code == 201, answer.content
        reply = RegisterReply.model_validate_json(answer.content)
        self.http.credentials(HTTP_AUTHORIZATION=f"Bearer {reply.credential}")
        return reply

    def move(self, endpoint: str) -> None:
        self.identity["data_endpoint"] = endpoint
        answered(self.http.put("/api/v1/agent/identity", self.identity), 204)


class FakeAgent(FakeProcess):
    coordinator: "FakeCoordinator | None" = None  # hears of its stage as soon as that is ready

    @property
    def row(self) -> Node:
        return Node.unscoped.get(uuid=self.uuid)

    def desired(self) -> DesiredState:
        answer = answered(self.http.get("/api/v1/agent/desired"), 200)
        return DesiredState.model_validate_json(answer.content)

    def beat(self, phase: Phase, *, generation: int, message: str = "", **more: Any) -> int:
        """One heartbeat; returns the generation the web wants."""
        observed = {"generation": generation, "phase": phase.value, "message": message, **more}
        if phase is Phase.READY:
            observed.setdefault("stage", STATS.model_dump(mode="json"))
        answer = answered(self.http.post("/api/v1/agent/heartbeat", {"observed": observed}), 200)
        wanted: int = answer.json()["generation"]
        if phase is Phase.READY and self.coordinator is not None:
            self.coordinator.hear_stage(generation)
        return wanted


class FakeCoordinator(FakeProcess):
    role = "coordinator"
    serves = 0  # the generation it reported last

    def __init__(
        self, cluster: Cluster, user: Any, *, port: int = 7000, name: str = "front"
    ) -> None:
        super().__init__(cluster, name, user, port=port)

    def join(self, token: str) -> RegisterReply:
        self.identity["http_url"] = f"http://127.0.0.1:{8100 + self.port - 7000}"
        return super().join(token)

    @property
    def row(self) -> Coordinator:
        return Coordinator.unscoped.get(uuid=self.uuid)

    def desired(self) -> CoordinatorDesired:
        answer = answered(self.http.get("/api/v1/coordinator/desired"), 200)
        return CoordinatorDesired.model_validate_json(answer.content)

    @property
    def plan(self) -> ServingPlan:
        """What it shall serve."""
        plan = self.desired().plan
        assert plan is not None
        return plan

    def hear_stage(self, generation: int) -> None:
        """Report once that it serves the generation, as soon as all its nodes are ready; what ran
        before may go on. Measures nothing."""
        if generation == self.serves:
            return
        cluster = self.row.cluster
        deployment = cluster.deployments.get(generation=generation)
        rows = [row for row in deployment.assignments.all() if not is_elsewhere(row)]
        if any(row.phase != Phase.READY.value for row in rows):
            return
        leaving = deployment.follows_generation
        self.report(
            generation=generation,
            leaving_generation=leaving,
            requests_total=0,
            output_tokens_total=0,
        )
        MetricSample.unscoped.filter(cluster=cluster).delete()

    def report(self, **changes: Any) -> int:
        report = REPORT.model_copy(update=changes)
        self.serves = report.generation
        answer = self.http.post("/api/v1/coordinator/report", report.model_dump(mode="json"))
        assert answer.status_code == 200, answer.content
        return answer.json()["generation"]


class FakeCluster:
    """A cluster whose nodes and coordinator have joined, with a plan by the real planner."""

    def __init__(self, cluster: Cluster, user: Any) -> None:
        self.cluster, self.user = cluster, user
        self.model = problems.models_of(cluster)[0]
        self.model.checkpoint = "/models/tiny-llama"
        self.model.save()
        self.plan = make_plan(cluster)
        self.coordinator = FakeCoordinator(cluster, user)
        self.agents = {
            node.name: FakeAgent(cluster, node.name, user, port=7001 + index)
            for index, node in enumerate(cluster.nodes.all())
        }
        for agent in self.agents.values():
            agent.coordinator = self.coordinator

    @property
    def used_agents(self) -> dict[str, FakeAgent]:
        """Those that the plan places layers on."""
        return {name: self.agents[name] for name in self.plan.document["placement"]}

    def deploy(self, **options: Any) -> Deployment:
        """Its plan, put to work."""
        plan, asked = Plan.unscoped.get(pk=self.plan.pk), DeployOptions(**options)
        return deploying.deploy(plan, user=self.user, options=asked, now=timezone.now())

    def ready(self, *, generation: int = 1) -> None:
        """Every node of the plan has loaded its layers."""
        for agent in self.used_agents.values():
            agent.beat(Phase.READY, generation=generation)

    def bring_up(self, deployment: Deployment) -> Deployment:
        """The deployment, now ready."""
        self.ready(generation=deployment.generation)
        deployment.refresh_from_db()
        assert deployment.status == Status.READY
        return deployment

    def fetch_some(self, name: str, *, generation: int = 1) -> dict[str, Any]:
        """The node lacks weights, and has a part of them by now; what it reports of that."""
        fetched = {"peer laptop": 1_000_000_000, "hub": 500_000_000}
        fetch = {"needed_bytes": 4_000_000_000, "fetched": fetched, "source": "hub", "eta_s": 130.0}
        weights = {"port": 9000, "fetch": fetch}
        self.agents[name].beat(Phase.LOADING, generation=generation, weights=weights)
        return weights

    def silence(self, name: str) -> None:
        """As if the agent had said nothing for a minute."""
        long_ago = timezone.now() - timedelta(minutes=1)
        Node.unscoped.filter(cluster=self.cluster, name=name).update(last_seen_at=long_ago)


class ServingCluster(FakeCluster):
    """The same, whose plan is deployed and ready, and whose coordinator reports."""

    def __init__(self, cluster: Cluster, user: Any) -> None:
        super().__init__(cluster, user)
        self.deploy()
        self.ready()
        self.coordinator.report()

    @property
    def deployment(self) -> Deployment:
        """The first, as it is now."""
        return Deployment.unscoped.earliest("pk")


def served(joined: FakeCluster) -> Deployment:
    """The plan of a cluster of which nothing changed since it joined, deployed and ready."""
    deployment: Deployment = recorded(lambda: _served(joined))
    joined.coordinator.serves = deployment.generation
    return deployment


def _served(joined: FakeCluster) -> Deployment:
    return joined.bring_up(joined.deploy())


def make_plan(cluster: Cluster, *, without: str = "") -> Plan:
    """A plan of the cluster's only model, without one of its nodes if it is named."""
    model = problems.models_of(cluster)[0]
    document = problem_to_dict(problems.build_problem(cluster, model))
    document["nodes"] = [node for node in document["nodes"] if node["name"] != without]
    document["network"]["links"] = [
        link
        for link in document["network"]["links"]
        if without not in (link["source"], link["target"])
    ]
    return planned(cluster, model, document, objective="flow", time_limit_s=5.0)


def planned(
    cluster: Cluster, model: LanguageModel, document: dict[str, Any], **options: str | float
) -> Plan:
    """A plan for the problem of this document, which the real planner computed once."""
    plan = _computed(json.dumps(document), **options)
    return Plan.objects.create(
        cluster=cluster,
        model=model,
        document=plan_to_dict(plan),
        problem=document,
        flow_tokens_per_s=plan.flow.value_tokens_per_s,
        upper_bound_tokens_per_s=plan.upper_bound_tokens_per_s,
        hops=plan.hops,
    )


@cache
def _computed(document: str, **options: Any) -> DomainPlan:
    return plan_by_method(
        problem_from_dict(json.loads(document)),
        options=PlanOptions(solver="highs", **options),
        progress=lambda incumbent: None,
        cancel=NeverCancelled(),
    )
