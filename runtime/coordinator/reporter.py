"""What the coordinator tells helixweb about once a second."""

from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.instance_group import InstanceGroup
from runtime.coordinator.instance_service import InstanceService
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.plans import Plans
from runtime.coordinator.refusals import NotServing
from runtime.coordinator.request_stats import RequestStats
from runtime.protocol.control import (
    MOST_REQUESTS_REPORTED,
    CoordinatorReport,
    KeySpending,
    LinkStats,
    LiveRequestState,
    NodeTraffic,
    ReportedRequest,
)
from runtime.protocol.request_trace import RequestTrace

_NONE_KNOWN = "no instance has told where it answers yet"


def build_report(
    *,
    dispatcher: Dispatcher,
    instances: InstanceService,
    stats: RequestStats,
    follower: PlanFollower,
    now: float,
    links: dict[str, LinkStats],
    traces: tuple[RequestTrace, ...] = (),
    keys: dict[str, KeySpending] | None = None,
) -> CoordinatorReport:
    """Everything helixweb may know of this moment; pure but for the windows forgetting."""
    plans, group = dispatcher.plans, instances.serving
    coming = instances.coming or plans.coming
    nodes, lost = _nodes(plans, stats)
    if group is not None:
        nodes |= group.node_traffic()
    is_serving, message = _is_serving(plans, instances, trouble=follower.trouble)
    return CoordinatorReport(
        generation=follower.generation,
        serving=is_serving,
        message=message,
        refused_generation=follower.refused_generation,
        coming_generation=None if coming is None else coming.generation,
        coming_missing=() if coming is None else coming.missing_nodes(),
        leaving_generation=instances.leaving_generation or plans.leaving_generation,
        leaving_requests=dispatcher.requests_leaving + instances.requests_leaving,
        draining={
            node: progress.model_copy(
                update={"requests": progress.requests + instances.requests_at(node)}
            )
            for node, progress in dispatcher.draining.progress().items()
        },
        paused=dispatcher.is_paused,
        window_s=stats.window_s,
        requests_running=dispatcher.requests_running + instances.requests_running,
        requests_waiting=dispatcher.requests_waiting + instances.requests_waiting,
        requests=tuple(
            _reported(request, now=now)
            for request in dispatcher.oldest_requests(MOST_REQUESTS_REPORTED)
        ),
        requests_total=stats.requests_total,
        requests_failed_total=stats.requests_failed_total,
        requests_rejected_total=stats.requests_rejected_total,
        prompt_tokens_total=stats.prompt_tokens_total,
        output_tokens_total=stats.output_tokens_total,
        prompt_tokens_per_s=stats.prompt_tokens.sum_per_s(),
        output_tokens_per_s=stats.output_tokens.sum_per_s(),
        **_latencies(stats),
        latency_counts=stats.latency_counts(),
        queue_p50_s=stats.queue_s.percentile(0.5),
        nodes=nodes,
        lost_nodes=lost,
        instances={} if group is None else group.traffic(),
        edge_tokens_total=dict(stats.edge_tokens_total),
        traces=traces,
        links=links,
        keys=keys or {},
    )


def _is_serving(plans: Plans, instances: InstanceService, *, trouble: str) -> tuple[bool, str]:
    """Whether requests are answered, and what is wrong; `trouble` is of the wanted pipelines."""
    group = instances.serving
    if group is None and instances.is_awaited:
        return False, _NONE_KNOWN
    if group is not None and not group.is_open:
        return False, _why_closed(group)
    if group is not None and not group.plan.placement.layers:
        return True, ""
    try:
        serving = plans.ready()
    except NotServing as error:
        return group is not None, trouble or str(error)
    return group is not None or serving.has_way(), trouble or serving.cut_words()


def _why_closed(group: InstanceGroup) -> str:
    words = [f"{name}: {one.message or one.condition}" for name, one in group.traffic().items()]
    return "no instance is ready (" + "; ".join(words)[:1500] + ")"


def _nodes(plans: Plans, stats: RequestStats) -> tuple[dict[str, NodeTraffic], dict[str, str]]:
    """What the nodes of all plans do, and how those that are lost were found to be; a node in two
    plans as the newer one knows it."""
    nodes: dict[str, NodeTraffic] = {}
    lost: dict[str, str] = {}
    tokens_of = stats.node_tokens_total
    for plan in plans.present:
        silent = plan.silent_nodes()
        drained = silent & plan.spared_nodes()  # they need not be heard of
        nodes |= {
            node: NodeTraffic(
                kv_estimate_token_layers=plan.kv.used_token_layers(node),
                kv_capacity_token_layers=plan.kv.capacity_token_layers(node),
                tokens_total=tokens_of[node],
                ready=node not in silent,
            )
            for node in plan.nodes
            if node not in drained
        }
        lost = {node: how for node, how in lost.items() if node not in plan.nodes}
        lost |= {node: how for node, how in plan.lost_nodes().items() if node not in drained}
    return nodes, lost


def _latencies(stats: RequestStats) -> dict[str, float | None]:
    """The fields of a report that are percentiles of the last moments."""
    kinds = {"ttft": stats.ttft_s, "itl": stats.itl_s, "tpot": stats.tpot_s, "e2e": stats.e2e_s}
    percents = {50: 0.5, 95: 0.95}
    return {
        f"{kind}_p{percent}_s": latency.percentile(share)
        for kind, latency in kinds.items()
        for percent, share in percents.items()
    }


def _reported(request: LiveRequest, *, now: float) -> ReportedRequest:
    pipeline = request.pipeline
    is_writing = pipeline is not None and (
        len(request.token_ids) > request.attempts[-1].tokens_before
    )
    return ReportedRequest(
        request=f"{request.id:016x}",
        state=LiveRequestState.WAITING
        if pipeline is None
        else LiveRequestState.WRITING
        if is_writing
        else LiveRequestState.PROMPT,
        age_s=max(0.0, now - request.arrived_at),
        model_name=request.serving.plan.model_name,
        prompt_tokens=len(request.prompt_ids),
        output_tokens=len(request.token_ids),
        nodes=request.nodes,
    )
