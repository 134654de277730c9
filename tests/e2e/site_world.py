"""`python -m tests.e2e.site_world NAME CHAT_URL [large]`: a site with something of everything.

With `large` also a cluster of 24 nodes.

Writes to the database of the environment's site, as its own services do, and prints the ids of what
it made as JSON. The processes of its clusters are doubles: they joined and reported once, and count
as heard for an hour.
"""

import copy
import json
import os
import sys
from datetime import datetime, timedelta
from typing import Any

from planner.serialization import problem_from_dict
from tests.e2e.mixed_cluster import problem_text

PASSWORD = "correct horse battery staple"
LOST = "mini"
FAILURE = (
    "No module named 'flash'; install it with pip install '.[agent]', or let the stage run on cpu"
)


def main(name: str, chat_url: str, size: str = "") -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    os.environ["HELIX_HOSTS"] = "testserver"
    import django

    django.setup()

    print(json.dumps(make_world(name, chat_url=chat_url, with_large=size == "large")))


def make_world(name: str, *, chat_url: str, with_large: bool = False) -> dict[str, Any]:
    """One cluster that serves, one in trouble, one to be changed; ids by what they are of."""
    from django.contrib.auth import get_user_model
    from django.utils import timezone

    from helixweb.common import login_links
    from helixweb.deployment.options import DeployOptions
    from helixweb.deployment.profiling import order_profiling
    from helixweb.deployment.services.deploying import deploy
    from helixweb.deployment.services.draining import drain
    from helixweb.inventory.as_code.problem_files import import_problem
    from helixweb.inventory.models import Replanning
    from tests.e2e.alert_world import some_alerts
    from tests.helixweb.process_doubles import FakeCluster

    now = timezone.now()
    user = get_user_model().objects.create_superuser(f"{name}-person", password=PASSWORD)
    serving, trouble, spare = (
        import_problem(problem_from_dict(_problem()), cluster_name=f"{name}-{kind}")
        for kind in ("serving", "trouble", "spare")
    )
    trouble.replanning = Replanning.NEVER  # or it is out of trouble while a test still looks
    trouble.save(update_fields=["replanning"])
    doubles = FakeCluster(serving, user)
    ids: dict[str, Any] = {
        "name": name,
        "user": user.username,
        "person": user.pk,
        "group": _group(f"{name}-night-shift", user, serving),
        "login_link": login_links.create(user),
        "coordinator": _authorization(doubles.coordinator),
        "front": doubles.coordinator.row.pk,
        "agent": _authorization(doubles.agents["tower"]),
        "cluster": serving.pk,
        "spare": spare.pk,
    }
    ids |= _instances(f"{name}-instances", user=user, now=now)
    if with_large:
        ids |= _large(f"{name}-mixed24", user=user, now=now)
    plan, run, incumbent = _searched(doubles.plan, user=user, now=now)
    deployment = deploy(plan, user=user, options=DeployOptions(), now=now)
    ids["slow_link"] = _all_ready(doubles, plan, generation=deployment.generation)
    _some_log(doubles.agents["tower"], now=now)
    doubles.coordinator.row.__class__.unscoped.update(http_url=chat_url)
    ids["request"] = _history(serving, plan, generation=deployment.generation, now=now)
    broken = FakeCluster(trouble, user)
    failing = deploy(broken.plan, user=user, options=DeployOptions(), now=now)
    _one_fails(broken, generation=failing.generation)
    ids["drain"] = drain(broken.agents["laptop"].row, user=user, now=now).pk
    order_profiling(broken.agents["tower"].row, broken.plan.model, user=user, now=now)
    torn, frayed = (_offered(f"{name}-{kind}", user=user, now=now) for kind in ("torn", "frayed"))
    _heard_for_an_hour(now)
    _lose(LOST, torn, frayed, now=now)
    ids |= {
        "torn": torn.pk,
        "frayed": frayed.pk,
        "plan": plan.pk,
        "run": run.pk,
        "incumbent": incumbent.pk,
        "deployment": deployment.pk,
        "failing": failing.pk,
        "trouble": trouble.pk,
        "model": plan.model_id,
        "model_name": plan.model.name,
        "node": serving.nodes.get(name="tower").pk,
        "profile": _measured(serving),
        "spare_node": spare.nodes.get(name="mini").pk,
        "spare_link": spare.links.get().pk,
        "spare_region_link": spare.region_links.first().pk,
        "spare_profile": spare.profiles.get(name="small").pk,
    }
    ids |= some_alerts(spare, user=user, now=now)
    return ids | _others(name, spare=spare, user=user, plan=plan, now=now)


def _group(name: str, user: Any, serving: Any) -> int:
    """With a member, and a role on one cluster."""
    from helixweb.access import roles_of_holders
    from helixweb.access.roles import Role

    group = roles_of_holders.make_group(name)
    roles_of_holders.set_members(group, [user])
    roles_of_holders.give(group, Role.OPERATOR, cluster=serving)
    return int(group.pk)


def _measured(serving: Any) -> int:
    """A profile with two versions, of which the newer says what it was made from."""
    from helixweb.inventory.services.profile_versions import export_profile, import_profile

    profile = serving.profiles.select_related("model").get(name="big")
    fit = {"points": 8, "median_error": 0.031, "worst_error": 0.12}
    point = {"layers": 5, "batch": 1, "tokens": 64, "seconds": 0.005, "median_s": 0.006, "runs": 4}
    evidence = {
        "seconds": 41.0, "waited_s": 3.0, "nic_bytes_per_s": 1.25e8, "prompt_fit": fit,
        "decode_fit": fit, "points": [{"phase": phase, **point} for phase in ("prompt", "decode")],
    }  # fmt: skip
    import_profile(serving, export_profile(profile) | {"evidence": evidence})
    return int(profile.pk)


def _problem() -> dict[str, Any]:
    """The tests' tiny problem with prices."""
    from tests.helixweb.conftest import TINY_PROBLEM

    problem = copy.deepcopy(TINY_PROBLEM)
    for number, profile in enumerate(problem["compute_profiles"].values(), start=1):
        profile["price_per_hour"] = 2.5 / number
    return problem


def _authorization(process: Any) -> str:
    """What the process, a double, sends as `Authorization`."""
    sent: str = process.http._credentials["HTTP_AUTHORIZATION"]
    return sent


def _finished_run(plan: Any, *, user: Any, now: datetime) -> Any:
    """A search that ended with this plan, which becomes a row of its own."""
    from helixweb.planning.incumbents import record_finished_run
    from helixweb.planning.models import PlanRun
    from planner.serialization import plan_from_dict

    run = PlanRun(
        cluster=plan.cluster,
        model=plan.model,
        problem=plan.problem,
        options={"objective": "flow", "time_limit_s": 5.0},
        created_by=user,
    )
    return record_finished_run(run, plan_from_dict(plan.document), now=now)


def _searched(plan: Any, *, user: Any, now: datetime) -> tuple[Any, Any, Any]:
    """The plan as if it had been searched for here: with its run and an incumbent."""
    from helixweb.planning.models import Incumbent
    from planner.serialization import plan_from_dict

    found = plan_from_dict(plan.document)
    run = _finished_run(plan, user=user, now=now)
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


def _replanned(plan: Any, other: Any, *, user: Any, now: datetime) -> Any:
    """A replanning of `plan` that stayed where it was, with `other` as its second answer."""
    from helixweb.planning.models import Replan

    run = _finished_run(plan, user=user, now=now)
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


def _all_ready(doubles: Any, plan: Any, *, generation: int) -> tuple[str, str]:
    """The ends of a link that the plan uses and whose source tells that it is slow."""
    from planner.serialization import plan_from_dict
    from runtime.protocol.control import LinkStats
    from runtime.protocol.phases import Phase
    from tests.helixweb.process_doubles import STATS

    agents = doubles.used_agents
    edges = plan_from_dict(plan.document).flow.edges
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


def _instances(cluster_name: str, *, user: Any, now: datetime) -> dict[str, Any]:
    """A cluster of instances, one failed and one somebody's server, and its pages."""
    from helixweb.deployment.options import DeployOptions
    from helixweb.deployment.services.deploying import deploy
    from helixweb.inventory.as_code.problem_files import import_problem
    from runtime.protocol.instance_orders import InstanceTraffic
    from runtime.protocol.phases import Phase
    from tests.helixweb.instance_doubles import Instances, beat_all, told

    cluster = import_problem(problem_from_dict(_problem()), cluster_name=cluster_name)
    doubles = Instances(cluster, user, whole=2, method="instances")
    run = _finished_run(doubles.plan, user=user, now=now)
    doubles.plan.delete()
    doubles.plan = run.plan
    well, failed = sorted(doubles.plan.document["placement"])
    options = DeployOptions(backend_by_node={well: "http://gpu.example:8000"})
    deployment = deploy(run.plan, user=user, options=options, now=now)
    beat_all(doubles, deployment)
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


def _large(cluster_name: str, *, user: Any, now: datetime) -> dict[str, Any]:
    """24 mixed GPUs, which serve by a plan that a search found."""
    from helixweb.deployment.options import DeployOptions
    from helixweb.deployment.services.deploying import deploy
    from helixweb.inventory.as_code.problem_files import import_problem
    from tests.helixweb.process_doubles import FakeCluster

    problem = json.loads(problem_text())
    cluster = import_problem(problem_from_dict(problem), cluster_name=cluster_name)
    doubles = FakeCluster(cluster, user)
    plan, run, _ = _searched(doubles.plan, user=user, now=now)
    deployment = deploy(plan, user=user, options=DeployOptions(), now=now)
    _all_ready(doubles, plan, generation=deployment.generation)
    _history(cluster, plan, generation=deployment.generation, now=now)
    return {
        "large": cluster.pk,
        "large_node": cluster.nodes.get(name=min(doubles.used_agents)).pk,
        "large_run": run.pk,
        "large_deployment": deployment.pk,
    }


def _some_log(agent: Any, *, now: datetime) -> None:
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


def _one_fails(doubles: Any, *, generation: int) -> None:
    from runtime.protocol.phases import Phase

    first, *others = doubles.used_agents.values()
    first.beat(Phase.FAILED, generation=generation, message=FAILURE)
    for agent in others:
        agent.beat(Phase.LOADING, generation=generation, loaded_ratio=0.4)


def _offered(cluster_name: str, *, user: Any, now: datetime) -> Any:
    """A deployment to which another placement is offered, without the node that is lost."""
    from helixweb.deployment.models import Repair
    from helixweb.deployment.options import DeployOptions
    from helixweb.deployment.services.deploying import deploy
    from helixweb.inventory.as_code.problem_files import import_problem
    from helixweb.inventory.models import Replanning
    from runtime.protocol.phases import Phase
    from tests.helixweb.process_doubles import FakeCluster, make_plan

    cluster = import_problem(problem_from_dict(_problem()), cluster_name=cluster_name)
    cluster.replanning = Replanning.ASK
    cluster.save()
    doubles = FakeCluster(cluster, user)
    deployment = deploy(doubles.plan, user=user, options=DeployOptions(), now=now)
    for agent in doubles.used_agents.values():
        agent.beat(Phase.READY, generation=deployment.generation)
    doubles.coordinator.report(
        generation=deployment.generation, lost_nodes={LOST: "its process has ended"}
    )
    found = make_plan(cluster, without=LOST)
    run = _finished_run(found, user=None, now=now)
    found.delete()
    Repair.objects.create(
        deployment=deployment, state=Repair.State.OFFERED, lost=[LOST], left_out=[LOST], run=run,
        unmoved_tokens_per_s=0.0, flow_tokens_per_s=run.plan.flow_tokens_per_s, moved_bytes=1e6,
        noticed_at=now,
    )  # fmt: skip
    return deployment


def _lose(name: str, *deployments: Any, now: datetime) -> None:
    """As if the agents of that name had said nothing for an hour."""
    from helixweb.inventory.models import Node

    Node.unscoped.filter(
        name=name, cluster__in=[deployment.cluster_id for deployment in deployments]
    ).update(last_seen_at=now - timedelta(hours=1))


def _history(cluster: Any, plan: Any, *, generation: int, now: datetime) -> str:
    """Twelve minutes of reports, and traces of a few requests; the number of one of them."""
    from helixweb.monitoring.services import record_sample
    from helixweb.monitoring.traces import record_traces
    from runtime.protocol.control import LATENCY_BOUNDS_S, CoordinatorReport, NodeTraffic
    from tests.helixweb.process_doubles import STATS
    from tests.helixweb.request_traces import made_up_trace

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


def _heard_for_an_hour(now: datetime) -> None:
    """Also what stages told of their links, which counts for a minute after."""
    from helixweb.deployment.models import NodeAssignment
    from helixweb.inventory.models import Coordinator, Node

    for kind in (Node, Coordinator):
        kind.unscoped.filter(joined_at__isnull=False).update(last_seen_at=now + timedelta(hours=1))
    outbox = NodeAssignment.unscoped.filter(stats__isnull=False)
    outbox.update(updated_at=now + timedelta(hours=1))


def _others(name: str, *, spare: Any, user: Any, plan: Any, now: datetime) -> dict[str, Any]:
    """What can be stopped, revoked or deleted, and does nothing by itself."""
    from helixweb.common.models import Job
    from helixweb.inventory.models import Cluster, LanguageModel, Node, SharedBandwidth
    from helixweb.inventory.services import joining, records
    from helixweb.planning.models import ModelMix, PlanRun, Simulation
    from tests.helixweb.process_doubles import make_plan

    # Without a lease, which could expire: no worker takes it, and it takes nobody's turn.
    running = {"status": Job.Status.RUNNING, "attempt": 1, "started_at": now}
    shared = records.create(
        SharedBandwidth,
        cluster=spare,
        name="uplink",
        members=["laptop", "mini"],
        direction=SharedBandwidth.Direction.choices[0][0],
        scope=SharedBandwidth.Scope.choices[0][0],
        bandwidth_bytes_per_s=12.5e6,
    )
    model = LanguageModel.objects.create(
        name=f"{name}-model",
        num_layers=8,
        activation_bytes_per_token=512.0,
        bytes_per_layer=1e6,
        num_heads=4,
        num_kv_heads=2,
    )
    mix = ModelMix.objects.create(cluster=spare, options={"time_limit_s": 60.0}, **running)
    mix.shares.create(model=plan.model, weight=1.0, problem=plan.problem)
    mix.shares.create(model=model, weight=2.0, problem=plan.problem)
    simulation = Simulation.objects.create(plan=plan, created_by=user, progress=0.3, **running)
    searches = [
        PlanRun.objects.create(
            cluster=spare, model=plan.model, problem=plan.problem, created_by=user,
            options={"objective": "flow", "time_limit_s": 60.0}, flow_tokens_per_s=42.0,
            upper_bound_tokens_per_s=50.0, **running,
        )
        for _ in range(2)
    ]  # fmt: skip
    many = records.create(Cluster, name=f"{name}-many")
    Node.objects.bulk_create(
        Node(cluster=many, name=f"extra-{number}", region="home") for number in range(60)
    )
    joining.create_join_token(spare, "node", user)
    second = make_plan(plan.cluster, without="mini")
    replan = _replanned(plan, second, user=user, now=now)
    return {
        "many": many.pk,
        "shared": shared.pk,
        "own_model": model.pk,
        "mix": mix.pk,
        "simulation": simulation.pk,
        "running": searches[0].pk,
        "also_running": searches[1].pk,
        "second_plan": second.pk,
        "replan_run": replan.run_id,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
