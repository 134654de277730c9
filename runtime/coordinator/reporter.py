"""What the coordinator tells helixweb about once a second."""

from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.refusals import NotServing
from runtime.coordinator.request_stats import RequestStats
from runtime.protocol.control import CoordinatorReport, KeySpending, LinkStats, NodeTraffic
from runtime.protocol.request_trace import RequestTrace


def build_report(
    *,
    dispatcher: Dispatcher,
    stats: RequestStats,
    follower: PlanFollower,
    now: float,
    links: dict[str, LinkStats],
    traces: tuple[RequestTrace, ...] = (),
    keys: dict[str, KeySpending] | None = None,
) -> CoordinatorReport:
    """Everything helixweb may know of this moment; pure but for the windows forgetting."""
    plans, coming = dispatcher.plans, dispatcher.plans.coming
    nodes: dict[str, NodeTraffic] = {}
    for plan in plans.present:  # of a node in two of them as the newer one knows it
        silent = plan.silent_nodes(now=now)
        drained = silent & plan.spared_nodes(now=now)  # which nobody need hear of
        nodes |= {
            node: NodeTraffic(
                kv_estimate_token_layers=plan.kv.used_token_layers(node),
                kv_capacity_token_layers=plan.kv.capacity_token_layers(node),
                tokens_total=stats.node_tokens_total[node],
                ready=node not in silent,
            )
            for node in plan.nodes
            if node not in drained
        }
    message = follower.trouble
    try:
        dispatcher.ready_serving()
        ready = True
    except NotServing as error:
        ready = False
        message = message or str(error)
    return CoordinatorReport(
        generation=follower.generation,
        serving=ready,
        message=message,
        refused_generation=follower.refused_generation,
        coming_generation=None if coming is None else coming.generation,
        coming_missing=() if coming is None else coming.missing_nodes(),
        leaving_generation=plans.leaving_generation,
        leaving_requests=dispatcher.requests_leaving,
        draining=dispatcher.draining.progress(),
        paused=dispatcher.is_paused,
        window_s=stats.window_s,
        requests_running=dispatcher.requests_running,
        requests_waiting=dispatcher.requests_waiting,
        requests_total=stats.requests_total,
        requests_failed_total=stats.requests_failed_total,
        requests_rejected_total=stats.requests_rejected_total,
        prompt_tokens_total=stats.prompt_tokens_total,
        output_tokens_total=stats.output_tokens_total,
        prompt_tokens_per_s=stats.prompt_tokens.sum_per_s(),
        output_tokens_per_s=stats.output_tokens.sum_per_s(),
        ttft_p50_s=stats.ttft_s.percentile(0.5),
        ttft_p95_s=stats.ttft_s.percentile(0.95),
        itl_p50_s=stats.itl_s.percentile(0.5),
        itl_p95_s=stats.itl_s.percentile(0.95),
        tpot_p50_s=stats.tpot_s.percentile(0.5),
        tpot_p95_s=stats.tpot_s.percentile(0.95),
        e2e_p50_s=stats.e2e_s.percentile(0.5),
        e2e_p95_s=stats.e2e_s.percentile(0.95),
        latency_counts=stats.latency_counts(),
        queue_p50_s=stats.queue_s.percentile(0.5),
        nodes=nodes,
        edge_tokens_total=dict(stats.edge_tokens_total),
        traces=traces,
        links=links,
        keys=keys or {},
    )
