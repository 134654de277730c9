"""What Prometheus reads of a site, a coordinator and an agent at work, and how tests read it."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from helixweb.access.scope import WHOLE_SITE
from helixweb.common.metrics import metrics_page
from helixweb.deployment import tasks
from helixweb.deployment.models import Deployment
from helixweb.monitoring.models import MetricSample
from planner.domain.pipeline import Pipeline, PipelineStage
from planner.serialization import plan_from_dict
from runtime.agent import metrics as agent_metrics
from runtime.coordinator import metrics as coordinator_metrics
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.request_stats import RequestStats
from runtime.protocol.control import LinkStats, NodeTraffic, ObservedState
from runtime.protocol.instance_orders import InstanceTraffic
from runtime.protocol.phases import Phase
from tests.helixweb.process_doubles import REPORT, STATS, FakeCluster

LINK = LinkStats(
    bandwidth_bytes_per_s=1e6,
    bandwidth_age_s=0.5,
    bandwidth_is_floor=False,
    rtt_s=0.01,
    urgent_bytes_total=30,
    bulk_bytes_total=40,
)
NODE = NodeTraffic(
    kv_estimate_token_layers=30.0, kv_capacity_token_layers=40.0, tokens_total=500, ready=True
)


def samples(text: bytes) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of every line."""
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def value(text: bytes, name: str, **labels: str) -> float:
    """Of the one line of that name that has these labels."""
    (found,) = [
        number
        for sample, told, number in samples(text)
        if sample == name and labels.items() <= told.items()
    ]
    return found


def serve(cluster: Any, user: Any) -> tuple[FakeCluster, Deployment]:
    """A deployment at work: every stage is ready and sends to others, the coordinator reports."""
    joined = FakeCluster(cluster, user)
    deployment = joined.deploy()
    edges = plan_from_dict(joined.plan.document).flow.edges
    for name, agent in joined.used_agents.items():
        targets = {edge.target for edge in edges if edge.source == name} & set(joined.agents)
        stage = STATS.model_copy(update={"links": dict.fromkeys(targets, LINK)})
        agent.beat(
            Phase.READY, generation=deployment.generation, stage=stage.model_dump(mode="json")
        )
    tasks.tend_deployments()
    joined.coordinator.report(
        generation=deployment.generation,
        nodes=dict.fromkeys(joined.used_agents, NODE),
        ttft_p95_s=0.4,
    )
    sample = MetricSample.unscoped.get(cluster=cluster)
    for node in sample.nodes.values():  # as if there had been a heartbeat before
        node |= {"busy_ratio": 0.5, "tokens_per_s": 90.0, "flow_share": 0.5}
    sample.save()
    return joined, Deployment.unscoped.get(pk=deployment.pk)


def site_page() -> bytes:
    """Of all clusters."""
    return metrics_page(timezone.now(), WHOLE_SITE)


def coordinator_page() -> bytes:
    """Of one that has answered a request on a pipeline and has an instance."""
    stats = RequestStats(window_s=10.0, clock=lambda: 0.0)
    pipeline = Pipeline(stages=(PipelineStage(node="tower", first=0, end=4),))
    stats.arrived()
    life = RequestLife(arrived_at=0.0, origin=Origin(), prompt_tokens=7)
    life.follow(pipeline, now=0.1)
    stats.routed(life)
    stats.token(life, now_s=0.4)
    stats.token(life, now_s=0.45)
    stats.finished(life, now_s=0.45)
    stats.came_to("stop")
    instance = InstanceTraffic(
        node="mini",
        condition="ready",
        open=True,
        requests=1,
        waiting=0,
        kv_usage=0.5,
        answered_total=3,
        output_tokens_total=9,
        output_tokens_per_s=1.0,
    )
    report = REPORT.model_copy(
        update={
            "requests_waiting": 2, "nodes": {"tower": NODE}, "instances": {"mini-0": instance}
        }
    )  # fmt: skip
    return coordinator_metrics.metrics_page(report, stats, model_name="tiny-llama")


def agent_page() -> bytes:
    """Of one whose stage is ready and sends to another."""
    stage = STATS.model_copy(update={"links": {"mini": LINK}, "delayed_s_total": 0.1})
    return agent_metrics.metrics_page(
        ObservedState(generation=1, phase=Phase.READY, stage=stage, loaded_ratio=1.0),
        node="tower",
        model_name="tiny-llama",
        heartbeat_age_s=0.5,
        heartbeats_failed_total=0,
    )
