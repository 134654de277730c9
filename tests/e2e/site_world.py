"""A site with something of everything, as its own services write it.

The processes of its clusters are doubles: they joined and reported once, and count as heard for an
hour.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from helixweb.access import roles_of_holders
from helixweb.access.roles import Role
from helixweb.alerting.models import (
    Alert,
    AlertRule,
    Channel,
    Delivery,
    DeliveryAttempt,
    Silence,
)
from helixweb.common import login_links
from helixweb.common.models import Job
from helixweb.common.sentences import sentence
from helixweb.deployment.models import NodeAssignment
from helixweb.deployment.profiling import order_profiling
from helixweb.deployment.services.draining import drain
from helixweb.inventory.models import (
    Cluster,
    Coordinator,
    LanguageModel,
    Node,
    Replanning,
    SharedBandwidth,
)
from helixweb.inventory.services import joining, records
from helixweb.inventory.services.profile_versions import export_profile, import_profile
from helixweb.planning.models import ModelMix, PlanRun, Simulation
from tests.e2e import world_clusters as clusters
from tests.helixweb.process_doubles import FakeCluster, make_plan

PASSWORD = "correct horse battery staple"


def main(name: str, chat_url: str, size: str = "") -> dict[str, Any]:
    """With the size `large` also a cluster of 24 nodes."""
    return make_world(name, chat_url=chat_url, with_large=size == "large")


def make_world(name: str, *, chat_url: str, with_large: bool = False) -> dict[str, Any]:
    """One cluster that serves, one in trouble, one to be changed; ids by what they are of."""
    now = timezone.now()
    user = get_user_model().objects.create_superuser(f"{name}-person", password=PASSWORD)
    serving = clusters.tiny_cluster(f"{name}-serving")
    # Another policy had it out of trouble while a test still looks.
    trouble = clusters.tiny_cluster(f"{name}-trouble", replanning=Replanning.NEVER)
    spare = clusters.tiny_cluster(f"{name}-spare")
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
    ids |= clusters.cluster_of_instances(f"{name}-instances", user=user, now=now)
    if with_large:
        ids |= clusters.large_cluster(f"{name}-mixed24", user=user, now=now)
    _heard_for_an_hour(now)  # on a busy machine the rows above take longer than silence may
    doubles.plan, run, incumbent = clusters.searched(doubles.plan, user=user, now=now)
    plan, deployment = doubles.plan, doubles.deploy()
    ids["slow_link"] = clusters.all_ready(doubles, generation=deployment.generation)
    clusters.some_log(doubles.agents["tower"], now=now)
    Coordinator.unscoped.update(http_url=chat_url)
    ids["request"] = clusters.history(serving, plan, generation=deployment.generation, now=now)
    broken = FakeCluster(trouble, user)
    failing = broken.deploy()
    clusters.one_fails(broken, generation=failing.generation)
    ids["drain"] = drain(broken.agents["laptop"].row, user=user, now=now).pk
    order_profiling(broken.agents["tower"].row, broken.plan.model, user=user, now=now)
    torn, frayed = (
        clusters.offered(f"{name}-{kind}", user=user, now=now) for kind in ("torn", "frayed")
    )
    _heard_for_an_hour(now)
    clusters.lose(clusters.LOST, torn, frayed, now=now)
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
    group = roles_of_holders.make_group(name)
    roles_of_holders.set_members(group, [user])
    roles_of_holders.give(group, Role.OPERATOR, cluster=serving)
    return int(group.pk)


def _measured(serving: Any) -> int:
    """A profile with two versions, of which the newer says what it was made from."""
    profile = serving.profiles.select_related("model").get(name="big")
    fit = {"points": 8, "median_error": 0.031, "worst_error": 0.12}
    point = {"layers": 5, "batch": 1, "tokens": 64, "seconds": 0.005, "median_s": 0.006, "runs": 4}
    evidence = {
        "seconds": 41.0, "waited_s": 3.0, "nic_bytes_per_s": 1.25e8, "prompt_fit": fit,
        "decode_fit": fit, "points": [{"phase": phase, **point} for phase in ("prompt", "decode")],
    }  # fmt: skip
    import_profile(serving, export_profile(profile) | {"evidence": evidence})
    return int(profile.pk)


def _authorization(process: Any) -> str:
    """What the process, a double, sends as `Authorization`."""
    sent: str = process.http._credentials["HTTP_AUTHORIZATION"]
    return sent


def _heard_for_an_hour(now: datetime) -> None:
    """Also what stages told of their links, which counts for a minute after."""
    for kind in (Node, Coordinator):
        kind.unscoped.filter(joined_at__isnull=False).update(last_seen_at=now + timedelta(hours=1))
    outbox = NodeAssignment.unscoped.filter(stats__isnull=False)
    outbox.update(updated_at=now + timedelta(hours=1))


def _others(name: str, *, spare: Any, user: Any, plan: Any, now: datetime) -> dict[str, Any]:
    """What can be stopped, revoked or deleted, and does nothing by itself."""
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
    replan = clusters.replanned(plan, second, user=user, now=now)
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


def some_alerts(cluster: Any, *, user: Any, now: datetime) -> dict[str, Any]:
    """Ids by what they are of."""
    rule = records.create(
        AlertRule,
        cluster=cluster,
        name="slow-answers",
        kind="ttft_p95",
        threshold=5.0,
        clears_at=4.0,
        for_s=120.0,
        resolve_s=86_400.0,  # no worker ends what it finds here
        severity="critical",
    )
    alert = Alert.objects.create(
        cluster=cluster,
        rule=rule,
        subject="TTFT",
        severity="critical",
        state="firing",
        value=9.0,
        said=sentence("95 of 100 first tokens come within %(value)s s.", value="9"),
        since=now - timedelta(minutes=7),
        fired_at=now - timedelta(minutes=5),
        flaps=2,
        turn=1,
    )
    channel = records.create(
        Channel, cluster=cluster, name="ops", way="webhook", url="http://127.0.0.1:9/hook"
    )
    delivery = Delivery.objects.create(
        channel=channel,
        occasion="alerts",
        number=uuid.uuid4(),
        told=[{"rule": rule.name, "subject": "TTFT", "state": "firing"}],
        status="failed",
        attempt=2,
        error="the receiver answered 500",
        next_try_at=now,
        finished_at=now,
    )
    for attempt in (1, 2):
        DeliveryAttempt.objects.create(
            delivery=delivery, attempt=attempt, at=now, took_s=0.2, code=500, error=delivery.error
        )
    silence = Silence.objects.create(
        cluster=cluster,
        subject="mini",
        starts_at=now,
        ends_at=now + timedelta(hours=8),
        comment="uplink",
        created_by=user,
    )
    return {
        "alert": alert.pk,
        "alert_rule": rule.pk,
        "alert_channel": channel.pk,
        "alert_delivery": delivery.pk,
        "alert_silence": silence.pk,
    }
