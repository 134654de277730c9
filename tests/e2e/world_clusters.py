"""Clusters of the tests' world: one that serves, in trouble, of instances, large, to repair."""

import copy
from datetime import datetime, timedelta
from typing import Any

from helixweb.deployment.models import Repair
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster, Node, Replanning
from helixweb.inventory.services.demonstration import demo_problem
from helixweb.monitoring.services import record_sample, record_traces
from helixweb.planning.incumbents import record_finished_run
from helixweb.planning.models import Incumbent, PlanRun, Replan
from planner.serialization import plan_from_dict, problem_from_dict
from runtime.protocol.control import LATENCY_BOUNDS_S, CoordinatorReport, LinkStats, NodeTraffic
from runtime.protocol.instance_orders import InstanceTraffic
from runtime.protocol.phases import Phase
from tests.helixweb.conftest import TINY_PROBLEM
from tests.helixweb.instance_doubles import Instances, told
from tests.helixweb.process_doubles import STATS, FakeCluster, make_plan
from tests.helixweb.request_traces import made_up_trace

LOST = "mini"
FAILURE = (
    "No module named 'flash'; install it with pip install '.[agent]', or let the stage run on cpu"
)


def tiny_cluster(name: str, **columns: Any) -> Cluster:
    """The tests' tiny problem with prices, imported."""
    document = copy.deepcopy(TINY_PROBLEM)
    for number, profile in enumerate(document["compute_profiles"].values(), start=1):
        profile["price_per_hour"] = 2.5 / number
    cluster = import_problem(problem_from_dict(document), cluster_name=name)
    Cluster.unscoped.filter(pk=cluster.pk).update(**columns)
    cluster.refresh_from_db()
    return cluster


def finished_run(plan: Any, *, user: Any, now: datetime) -> Any:
    """A search that ended with this plan, which becomes a row of its own."""
    run = PlanRun(
        cluster=plan.cluster,
        model=plan.model,
        problem=plan.problem,
        options={"objective": "flow", "time_limit_s": 5.0},
        created_by=user,
    )
    return record_finished_run(run, plan_from_dict(plan.document), now=now)


def searched(plan: Any, *, user: Any, now: datetime) -> tuple[Any, Any, Any]:
    """The plan as if it had been searched for here: with its run and an incumbent."""
    found = plan_from_dict(plan.document)
    run = finished_run(plan, user=user, now=now)
    incumbents = [
        Incumbent.objects.create(
            run=run,
            attempt=1,
            elapsed_s=elapsed_s,
            flow_tokens_per_s=share * plan.flow_tokens_per_s,
            upper_bound_tokens_per_s=plan.upper_bound_tokens_per_s,
            placer=placer,
            placement=found.placement.as_lists(),
        )
        for elapsed_s, share, placer in ((0.1, 0.8, "petals"), (0.7, 1.0, "milp"))
    ]
    plan.delete()
    return run.plan, run, incumbents[-1]


def replanned(plan: Any, other: Any, *, user: Any, now: datetime) -> Any:
    """A replanning of `plan` that stayed where it was, with `other` as its second answer."""
    run = finished_run(plan, user=user, now=now)
    points = [
        {
            "placement": row.document["placement"],
            "components": [],
            "flow_tokens_per_s": row.flow_tokens_per_s,
            "moved_bytes": moved_bytes,
            "method": "annealing",
        }
        for row, moved_bytes in ((plan, 0.0), (other, 2e6))
    ]
    return Replan.objects.create(run=run, running_plan=plan, budget_bytes=4e6, points=points)


def all_ready(doubles: FakeCluster, *, generation: int) -> tuple[str, str]:
    """The ends of a link that the plan uses and whose source tells that it is slow."""
    agents = doubles.used_agents
    edges = plan_from_dict(doubles.plan.document).flow.edges
    source, target = next(
        (edge.source, edge.target)
        for edge in edges
        if edge.flow_tokens_per_s > 0 and {edge.source, edge.target} <= set(agents)
    )
    slow = LinkStats(
        bandwidth_bytes_per_s=12.5e6, bandwidth_age_s=0.5, bandwidth_is_floor=False, rtt_s=0.01
    )
    for name, agent in agents.items():
        links = {target: slow} if name == source else {}
        stage = STATS.model_copy(update={"links": links}).model_dump(mode="json")
        agent.beat(Phase.LOADING, generation=generation, message="reading weights")
        agent.beat(Phase.READY, generation=generation, stage=stage)
    return source, target


def cluster_of_instances(cluster_name: str, *, user: Any, now: datetime) -> dict[str, Any]:
    """A cluster of instances, one failed and one external, and its pages."""
    cluster = tiny_cluster(cluster_name)
    doubles = Instances(cluster, user, whole=2, method="instances")
    run = finished_run(doubles.plan, user=user, now=now)
    doubles.plan.delete()
    doubles.plan = run.plan
    well, failed = sorted(doubles.plan.document["placement"])
    deployment = doubles.deploy(backend_by_node={well: "http://gpu.example:8000"})
    doubles.ready(generation=deployment.generation)
    last = "Loading safetensors checkpoint shards: 50%\ntorch.OutOfMemoryError: CUDA out of memory"
    doubles.agents[failed].beat(
        Phase.FAILED,
        generation=deployment.generation,
        message=f"instance {failed}: exited with status 1",
        instances=[told(failed, "waiting", message="exited with status 1", log_tail=last)],
    )
    traffic = InstanceTraffic(
        node=well, condition="ready", open=True, requests=3, waiting=1, kv_usage=0.4,
        answered_total=120, failed_total=2, output_tokens_per_s=210.0,
    )  # fmt: skip
    doubles.coordinator.report(generation=deployment.generation, instances={well: traffic})
    return {
        "instances_run": run.pk,
        "instances": deployment.pk,
        "instances_cluster": cluster.pk,
        "instances_node": doubles.agents[failed].row.pk,
    }


def large_cluster(cluster_name: str, *, user: Any, now: datetime) -> dict[str, Any]:
    """24 mixed GPUs, which serve by a plan that a search found."""
    cluster = import_problem(demo_problem(), cluster_name=cluster_name)
    doubles = FakeCluster(cluster, user)
    doubles.plan, run, _ = searched(doubles.plan, user=user, now=now)
    deployment = doubles.deploy()
    all_ready(doubles, generation=deployment.generation)
    history(cluster, doubles.plan, generation=deployment.generation, now=now)
    return {
        "large": cluster.pk,
        "large_node": cluster.nodes.get(name=min(doubles.used_agents)).pk,
        "large_run": run.pk,
        "large_deployment": deployment.pk,
    }


def some_log(agent: Any, *, now: datetime) -> None:
    lines = (
        ("agent", "info", "runtime.agent.agent generation 1 is wanted"),
        ("stage", "info", "runtime.engine.loading read layers [0, 3) of tiny-llama in 0.4 s"),
        ("stage", "warning", "runtime.transport.peers laptop was silent for 1.6 s"),
        ("stage", "error", f"RuntimeError: {FAILURE}"),
    )
    answer = agent.http.post(
        "/api/v1/agent/log",
        {
            "lines": [
                {"at_s": now.timestamp(), "source": source, "level": level, "text": text}
                for source, level, text in lines
            ]
        },
    )
    assert answer.status_code == 204, answer.content


def one_fails(doubles: Any, *, generation: int) -> None:
    first, *others = doubles.used_agents.values()
    first.beat(Phase.FAILED, generation=generation, message=FAILURE)
    for agent in others:
        agent.beat(Phase.LOADING, generation=generation, loaded_ratio=0.4)


def offered(cluster_name: str, *, user: Any, now: datetime) -> Any:
    """A deployment to which another placement is offered, without the node that is lost."""
    cluster = tiny_cluster(cluster_name, replanning=Replanning.ASK)
    doubles = FakeCluster(cluster, user)
    deployment = doubles.deploy()
    doubles.ready(generation=deployment.generation)
    doubles.coordinator.report(
        generation=deployment.generation, lost_nodes={LOST: "its process has ended"}
    )
    found = make_plan(cluster, without=LOST)
    run = finished_run(found, user=None, now=now)
    found.delete()
    Repair.objects.create(
        deployment=deployment, state=Repair.State.OFFERED, lost=[LOST], left_out=[LOST], run=run,
        unmoved_tokens_per_s=0.0, flow_tokens_per_s=run.plan.flow_tokens_per_s, moved_bytes=1e6,
        noticed_at=now,
    )  # fmt: skip
    return deployment


def lose(name: str, *deployments: Any, now: datetime) -> None:
    """As if the agents of that name had said nothing for an hour."""
    Node.unscoped.filter(
        name=name, cluster__in=[deployment.cluster_id for deployment in deployments]
    ).update(last_seen_at=now - timedelta(hours=1))


def history(cluster: Any, plan: Any, *, generation: int, now: datetime) -> str:
    """Twelve minutes of reports, and traces of a few requests; the number of one of them."""
    names = list(plan.document["placement"])
    for step in range(100):
        ago_s = 700 - 7 * step
        counts = tuple(
            step * max(0, 6 - abs(3 - place)) for place in range(len(LATENCY_BOUNDS_S) + 1)
        )
        report = CoordinatorReport(
            generation=generation, serving=True, window_s=10.0,
            requests_running=2 + step % 5, requests_waiting=step % 3, requests_total=9 * step,
            requests_failed_total=0, requests_rejected_total=0,
            prompt_tokens_total=900 * step, output_tokens_total=450 * step + 450,
            prompt_tokens_per_s=60.0 + step % 7, output_tokens_per_s=30.0 + step % 11,
            ttft_p50_s=0.2, ttft_p95_s=0.4 + 0.01 * (step % 9), itl_p50_s=0.03, itl_p95_s=0.05,
            tpot_p50_s=0.03, tpot_p95_s=0.04, e2e_p50_s=1.2, e2e_p95_s=2.4,
            nodes={
                node: NodeTraffic(
                    kv_estimate_token_layers=20.0, kv_capacity_token_layers=100.0,
                    tokens_total=900 * step, ready=True,
                )
                for node in names
            },
            latency_counts=dict.fromkeys(("ttft", "itl", "tpot", "e2e"), counts),
        )  # fmt: skip
        stats = {
            node: STATS.model_copy(
                update={"busy_s_total": 1.5 * step, "uptime_s": 7.0 * step + 1,
                        "kv_pages_used": 20 + step // 4, "prompt_tokens_total": 900 * step}
            )
            for node in names
        }  # fmt: skip
        at = now - timedelta(seconds=ago_s)
        record_sample(cluster_id=cluster.pk, report=report, node_stats=stats, at=at)
    first = cluster.pk * 1000
    traces = [
        made_up_trace(first + number, arrived_at=now.timestamp() - 60 * number)
        for number in range(5)
    ]
    record_traces(cluster_id=cluster.pk, traces=traces)
    return traces[0].request
