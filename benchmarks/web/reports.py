"""A coordinator's reports of the large cluster, stored as the site stores them.

Import it after `open_site`.
"""

from functools import cache

from django.db import transaction
from django.utils import timezone

from benchmarks.web.rows import stage_stats
from helixweb.deployment.models import Deployment
from helixweb.deployment.signals import report_received
from helixweb.inventory.models import Coordinator
from runtime.protocol.control import CoordinatorReport, NodeTraffic


def store_report(cluster_id: int, number: int) -> None:
    """Report `number`: every node has computed for a second more than in the one before."""
    generation, placed, edges = _served(cluster_id)
    counted = 2_000_000 + number
    report = CoordinatorReport(
        generation=generation, serving=True, window_s=10.0, requests_running=40,
        requests_waiting=2, requests_total=counted, requests_failed_total=0,
        requests_rejected_total=0, prompt_tokens_total=counted, output_tokens_total=counted,
        prompt_tokens_per_s=3000.0, output_tokens_per_s=1000.0 + number % 7, ttft_p50_s=0.2,
        ttft_p95_s=0.4, itl_p50_s=0.02, itl_p95_s=0.04, tpot_p50_s=0.02, tpot_p95_s=0.04,
        e2e_p50_s=2.0, e2e_p95_s=5.0,
        nodes={
            name: NodeTraffic(
                kv_estimate_token_layers=5e3, kv_capacity_token_layers=1e4, tokens_total=counted,
                ready=True,
            )
            for name in placed
        },
        edge_tokens_total=dict.fromkeys(edges, counted),
    )  # fmt: skip
    stats = {name: stage_stats(counted + index % 3) for index, name in enumerate(placed)}
    with transaction.atomic():
        report_received.send(
            sender=Coordinator, cluster_id=cluster_id, report=report, node_stats=stats,
            at=timezone.now(),
        )  # fmt: skip


@cache
def _served(cluster_id: int) -> tuple[int, list[str], list[str]]:
    """Generation, nodes and used edges of what is deployed; a coordinator knows them by heart."""
    deployment = Deployment.unscoped.select_related("plan").get(cluster=cluster_id)
    plan = deployment.plan.document
    edges = [
        f"{edge['source']}->{edge['target']}"
        for edge in plan["flow"]["edges"]
        if edge["flow_tokens_per_s"] > 0
    ]
    return deployment.generation, list(plan["placement"]), edges
