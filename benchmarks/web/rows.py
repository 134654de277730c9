"""The rows of a large site. Import it after `open_site`.

The large cluster serves a plan of all its nodes; small clusters hold the long past. The same
arguments make the same rows, but for the time of day.
"""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from helixweb.deployment.models import Deployment, NodeAssignment, Status
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster, Coordinator, LanguageModel, Node, NodeTag
from helixweb.monitoring.history import roll_up
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.node_samples import NodeSample
from helixweb.monitoring.services import ALL_DETAIL_S, DETAIL_EVERY_S, record_traces
from helixweb.planning import incumbents
from helixweb.planning.models import Incumbent, Plan, PlanRun
from helixweb.planning.options import options_to_json
from planner.generate import generated_cluster
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_to_dict
from runtime.protocol.control import StageStats
from runtime.protocol.phases import Phase
from runtime.protocol.request_trace import RequestTrace

USER = "bench"
LARGE = "large"
SMALL_CLUSTERS = 11
RECENT = timedelta(minutes=15)
OPTIONS = PlanOptions(objective="flow", time_limit_s=10.0)
# Runs that keep a snapshot of the large cluster; the others keep one of a small cluster.
LARGE_RUNS = 200
KINDS = ("ttft", "itl", "tpot", "e2e")
KEY = "k" * 40


def user() -> Any:
    """Who has made everything, and may see it."""
    users = get_user_model().objects
    return users.get_or_create(username=USER, defaults={"is_superuser": True})[0]


def large_cluster(*, nodes: int, regions: int) -> Cluster:
    """Imported, joined, planned and deployed."""
    problem = generated_cluster(num_nodes=nodes, num_regions=regions, seed=1)
    document = problem_to_dict(problem)
    cluster = import_problem(problem, cluster_name=LARGE)
    now = timezone.now()
    _join_all(cluster, now)
    plan = _planned(cluster, document)
    deployment = Deployment.objects.create(
        cluster=cluster, plan=plan, model=plan.model, model_name=plan.model.name,
        checkpoint="/models/large", generation=1, status=Status.READY, page_tokens=16,
        max_batch_tokens=512, kv_high_water=0.9, max_queued_requests=64, max_context_tokens=2048,
        serving_plan={}, created_by=user(), created_at=now, ready_at=now, changed_at=now,
        pushed_at=now,
    )  # fmt: skip
    ids = dict(Node.unscoped.filter(cluster=cluster).values_list("name", "pk"))
    NodeAssignment.objects.bulk_create(
        [
            NodeAssignment(
                deployment=deployment, node_id=ids[name], node_name=name, observed_generation=1,
                desired={"first": first, "end": end}, phase=Phase.READY.value,
                stats=stage_stats(0).model_dump(mode="json"), updated_at=now,
            )
            for name, (first, end) in plan.document["placement"].items()
        ],
        batch_size=200,
    )  # fmt: skip
    return cluster


def _join_all(cluster: Cluster, now: datetime) -> None:
    import uuid

    rows = list(cluster.nodes.all())
    for row in rows:
        row.uuid = uuid.uuid5(uuid.NAMESPACE_DNS, row.name)
        row.joined_at = row.last_seen_at = now
        row.data_endpoint, row.data_public_key = f"tcp://10.0.0.1:{10_000 + row.pk}", KEY
        row.hardware = {
            "hostname": row.name, "cpu_count": 16, "memory_bytes": 128 * 10**9,
            "memory_budget_bytes": 40 * 10**9, "relative_speed": 1.0, "emulated": False,
            "gpus": [{"name": row.profile_name, "memory_bytes": 40 * 10**9}],
        }  # fmt: skip
    fields = ("uuid", "joined_at", "last_seen_at", "data_endpoint", "data_public_key", "hardware")
    Node.unscoped.bulk_update(rows, fields, batch_size=200)
    NodeTag.objects.bulk_create(
        [NodeTag(node=row, name=f"rack-{index % 40}") for index, row in enumerate(rows)],
        batch_size=500,
    )
    Coordinator.objects.create(
        cluster=cluster, name="front", uuid=uuid.uuid5(uuid.NAMESPACE_DNS, "front"),
        http_url="http://127.0.0.1:9", joined_at=now, last_seen_at=now,
        data_endpoint="tcp://10.0.0.1:9", data_public_key=KEY,
    )  # fmt: skip


def _planned(cluster: Cluster, document: dict[str, Any]) -> Plan:
    from planner.serialization import problem_from_dict

    found = compute_plan(
        problem_from_dict(document),
        options=OPTIONS,
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )
    run = PlanRun(
        cluster=cluster, model=LanguageModel.objects.get(name=document["model"]["name"]),
        problem=document, options=options_to_json(OPTIONS), created_by=user(),
    )  # fmt: skip
    incumbents.record_finished_run(run, found, now=timezone.now())
    Incumbent.objects.bulk_create(
        [
            Incumbent(
                run=run, attempt=1, elapsed_s=0.1 * number, placer="milp",
                flow_tokens_per_s=found.flow.value_tokens_per_s * number / 20,
                upper_bound_tokens_per_s=found.upper_bound_tokens_per_s,
                placement=found.placement.as_lists(),
            )
            for number in range(1, 21)
        ]
    )  # fmt: skip
    return Plan.unscoped.get(run=run)


def plan_runs(count: int) -> None:
    """Of the large cluster and of small ones, finished long ago; each with its plan."""
    large = Plan.unscoped.select_related("run").get(cluster__name=LARGE)
    small_problem = generated_cluster(num_nodes=24, num_regions=2, seed=2)
    small = [
        import_problem(small_problem, cluster_name=f"small-{number}")
        for number in range(SMALL_CLUSTERS)
    ]
    seed = _planned(small[0], problem_to_dict(small_problem))
    now, made = timezone.now(), []
    for number in range(count):
        shape = large if number < LARGE_RUNS else seed
        cluster = large.cluster if number < LARGE_RUNS else small[number % SMALL_CLUSTERS]
        began = now - timedelta(minutes=10 * (count - number))
        made.append(
            PlanRun(
                cluster=cluster, model=shape.model, problem=shape.problem, status="succeeded",
                options=options_to_json(OPTIONS), solver="highs", created_by=user(),
                flow_tokens_per_s=shape.flow_tokens_per_s, started_at=began, finished_at=now,
                upper_bound_tokens_per_s=shape.upper_bound_tokens_per_s,
            )
        )  # fmt: skip
    for begin in range(0, count, 200):
        stored = PlanRun.objects.bulk_create(made[begin : begin + 200])
        shapes = [large if row.cluster_id == large.cluster_id else seed for row in stored]
        Plan.objects.bulk_create(
            [
                Plan(
                    cluster_id=row.cluster_id, model_id=row.model_id, run=row,
                    document=shape.document, problem=shape.problem, hops=shape.hops,
                    flow_tokens_per_s=shape.flow_tokens_per_s,
                    upper_bound_tokens_per_s=shape.upper_bound_tokens_per_s,
                )
                for row, shape in zip(stored, shapes, strict=True)
            ]
        )  # fmt: skip
    # The pages look for the large cluster's newest run, which is the one that is deployed.


def old_samples(count: int) -> None:
    """Of small clusters, a sample a second up to now: those of one, copied for the others."""
    clusters = list(Cluster.unscoped.filter(name__startswith="small-").order_by("pk"))
    chance, now = random.Random(3), int(timezone.now().timestamp())
    names = [f"node-{number}" for number in range(2)]
    ages = range(-(-count // len(clusters)), 0, -1)
    _store(_sample(clusters[0], now - age, names, chance, age=age) for age in ages)
    fields = [field.column for field in MetricSample._meta.concrete_fields]
    columns = ", ".join(column for column in fields if column not in ("id", "cluster_id"))
    table = MetricSample._meta.db_table
    with connection.cursor() as cursor:
        for cluster in clusters[1:]:
            cursor.execute(
                f"INSERT INTO {table} (cluster_id, {columns}) "  # noqa: S608 - names of columns
                f"SELECT %s, {columns} FROM {table} WHERE cluster_id = %s",
                [cluster.pk, clusters[0].pk],
            )


def roll_ups() -> None:
    """Of all samples, as the worker makes them every five minutes."""
    roll_up(timezone.now())


def recent_samples(*, ahead: timedelta = timedelta()) -> None:
    """Of the large cluster, every second of `RECENT` until `ahead` of now, in place of all others.

    What nodes did is there as often as the site keeps it. A site whose newest sample lies ahead
    shows its nodes as heard of until then.
    """
    cluster = Cluster.unscoped.get(name=LARGE)
    MetricSample.unscoped.filter(cluster=cluster).delete()
    names = sorted(Deployment.unscoped.get(cluster=cluster).plan.document["placement"])
    chance, end = random.Random(4), int((timezone.now() + ahead).timestamp())
    length = int((RECENT + ahead).total_seconds())
    _store(
        _sample(
            cluster, end - age,
            names if age < ALL_DETAIL_S or (end - age) % DETAIL_EVERY_S == 0 else [],
            chance, age=age,
        )
        for age in range(length, -1, -1)
    )  # fmt: skip


def _store(rows: Iterable[MetricSample]) -> None:
    batch: list[MetricSample] = []
    for row in rows:
        batch.append(row)
        if len(batch) == 500:
            MetricSample.objects.bulk_create(batch)
            batch.clear()
    MetricSample.objects.bulk_create(batch)


def _sample(
    cluster: Cluster, second: int, names: list[str], chance: random.Random, *, age: int
) -> MetricSample:
    counted = 1_000_000 - age
    return MetricSample(
        cluster=cluster, second=second, at=datetime.fromtimestamp(second, tz=UTC), generation=1,
        output_tokens_per_s=chance.uniform(900, 1100), prompt_tokens_per_s=chance.uniform(3e3, 4e3),
        running=40, waiting=2, entered_tokens_total=4000 * counted,
        latency_totals={kind: [counted + step for step in range(17)] for kind in KINDS},
        edge_tokens_total={f"source->{name}": 4000 * counted for name in names[:1]},
        nodes={name: _node(counted, second, chance) for name in names},
        **{f"{kind}_p{share}_s": chance.uniform(0.1, 0.3) for kind in KINDS for share in (50, 95)},
    )  # fmt: skip


def _node(counted: int, second: int, chance: random.Random) -> dict[str, Any]:
    return NodeSample(
        kv_used_pages=chance.randrange(4000), kv_total_pages=5000, sequences=chance.randrange(40),
        busy_ratio=round(chance.random(), 4), tokens_per_s=chance.uniform(100, 400),
        flow_share=chance.random(), kv_promised_ratio=round(chance.random(), 4),
        heard_second=second, uptime_s=float(counted), busy_s_total=0.5 * counted,
        stage_tokens_total=300 * counted, routed_tokens_total=300 * counted,
    ).to_json()  # fmt: skip


def stage_stats(counted: int) -> StageStats:
    """After so many steps."""
    return StageStats(
        kv_pages_total=5000, kv_pages_used=2000, sequences=20, steps_total=counted,
        prompt_tokens_total=200 * counted, decode_tokens_total=100 * counted,
        busy_s_total=0.5 * counted, uptime_s=float(counted), weights_bytes=10**10, kv_bytes=10**10,
    )  # fmt: skip


def traces(count: int) -> None:
    """Requests of the large cluster in the last day, through three of its nodes each."""
    cluster = Cluster.unscoped.get(name=LARGE)
    names = sorted(Deployment.unscoped.get(cluster=cluster).plan.document["placement"])
    now = timezone.now().timestamp()
    for begin in range(0, count, 500):
        numbers = range(begin, min(count, begin + 500))
        record_traces(cluster.pk, list(_traces(names, numbers, now=now, apart_s=80_000 / count)))


def _traces(
    names: list[str], numbers: Iterable[int], *, now: float, apart_s: float
) -> Iterator[RequestTrace]:
    for number in numbers:
        path = [names[(number + step) % len(names)] for step in range(3)]
        parts = [("coordinator", None, "queue", "prompt", 0.1)]
        ends = ["coordinator", *path]
        for source, target in zip(ends, path, strict=False):
            parts += [
                (source, target, "transfer", "prompt", 0.02),
                (target, None, "compute", "prompt", 0.1),
                (target, None, "compute", "decode", 0.5),
            ]
        at_s, rows = 0.0, []
        for node, to, kind, phase, seconds in parts:
            spans = [(at_s, at_s + seconds, seconds, 1)]
            rows.append({"node": node, "to": to, "kind": kind, "phase": phase, "spans": spans})
            at_s += seconds
        yield RequestTrace.model_validate(
            {
                "request": f"{number:016x}", "generation": 1, "model_name": "large",
                "arrived_at": now - apart_s * number, "outcome": "length", "prompt_tokens": 700,
                "output_tokens": 200, "queue_s": 0.1, "ttft_s": 0.5, "e2e_s": at_s, "attempts": 1,
                "pipeline": [{"node": name, "first": 0, "end": 80} for name in path],
                "parts": [
                    {"node": node, "to": to, "kind": kind, "phase": phase, "seconds": seconds,
                     "count": 1}
                    for node, to, kind, phase, seconds in parts
                ],
                "rows": rows,
                "token_times_s": [0.5 + 0.005 * token for token in range(200)],
            }
        )  # fmt: skip
