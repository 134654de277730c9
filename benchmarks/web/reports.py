"""A coordinator's reports of the large cluster, stored as the site stores them.

Import it after `open_site`.
"""

from django.db import transaction
from django.utils import timezone

from benchmarks.web.rows import stage_stats
from helixweb.deployment.models import Deployment
from helixweb.deployment.signals import report_received
from helixweb.inventory.models import Coordinator
from runtime.protocol.control import CoordinatorReport, NodeTraffic


def store_report(cluster_id: int, number: int) -> None:
    """Report `number`: every node has computed for a second more than in the one before."""
    deployment = Deployment.objects.select_related("plan").get(cluster=cluster_id)
    plan = deployment.plan.document
    counted = 2_000_000 + number
    report = CoordinatorReport(
        generation=deployment.generation, serving=True, window_s=10.0, requests_running=40,
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
            for name in plan["placement"]
        },
        edge_tokens_total={
            f"{edge['source']}->{edge['target']}": counted
            for edge in plan["flow"]["edges"]
            if edge["flow_tokens_per_s"] > 0
        },
    )  # fmt: skip
    stats = {name: stage_stats(counted + index % 3) for index, name in enumerate(plan["placement"])}
    with transaction.atomic():
        report_received.send(
            sender=Coordinator, cluster_id=cluster_id, report=report, node_stats=stats,
            at=timezone.now(),
        )  # fmt: skip
