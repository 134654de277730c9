"""The coordinator's /metrics: requests under vLLM's names, and what only we have under ours.

All from the report that helixweb gets and the counts behind it. A model's name stands on all
counts since the process started, also of models that it served before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from runtime.coordinator.request_stats import Histogram, RequestStats
from runtime.protocol.control import CoordinatorReport
from runtime.protocol.exposition import counter, gauge, histogram, page

NO_MODEL = ""
# vLLM's finished_reason; all else that ends a request is an error of ours.
_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort"}


def metrics_page(report: CoordinatorReport, stats: RequestStats, *, model_name: str) -> bytes:
    """`model_name` is what is served now; NO_MODEL: nothing."""
    usage = max(_kv_usage(report).values(), default=0.0)
    running, waiting = report.requests_running, report.requests_waiting
    of_requests = metrics_of_requests(
        stats, model_name=model_name, running=running, waiting=waiting, kv_usage=usage
    )
    return page([*of_requests, *_of_plan(report, stats)])


def metrics_of_requests(
    stats: RequestStats, *, model_name: str, running: int, waiting: int, kv_usage: float | None
) -> Iterator[Metric]:
    """Under vLLM's names; `kv_usage` None: it is not known."""
    model = {"model_name": model_name}
    yield gauge(
        "vllm:num_requests_running",
        "Requests that run on a pipeline or an instance",
        [(model, running)],
    )
    yield gauge(
        "vllm:num_requests_waiting",
        "Requests that wait for a pipeline or an instance",
        [(model, waiting)],
    )
    if kv_usage is not None:
        yield gauge(
            "vllm:kv_cache_usage_perc",
            "Share of the KV cache that requests may need, 0 to 1, at the fullest node",
            [(model, kv_usage)],
        )
    yield counter(
        "vllm:prompt_tokens_total", "Prompt tokens read", [(model, stats.prompt_tokens_total)]
    )
    yield counter(
        "vllm:generation_tokens_total", "Tokens written", [(model, stats.output_tokens_total)]
    )
    reasons: Counter[str] = Counter(dict.fromkeys([*_REASONS.values(), "error"], 0))
    for outcome, count in stats.outcomes.items():
        reasons[_REASONS.get(outcome, "error")] += count
    yield counter(
        "vllm:request_success_total",
        "Requests that are over, by what ended them",
        [({**model, "finished_reason": reason}, count) for reason, count in reasons.items()],
    )
    for name, (words, counted) in _histograms(stats).items():
        yield histogram(
            f"vllm:{name}",
            words,
            model,
            bounds=counted.bounds,
            counts=counted.counts,
            total=counted.total,
        )


def _histograms(stats: RequestStats) -> Mapping[str, tuple[str, Histogram]]:
    return {
        "time_to_first_token_seconds": (
            "From a request's arrival to its first token, queueing included",
            stats.ttft_s.histogram,
        ),
        "inter_token_latency_seconds": ("Between two tokens of a request", stats.itl_s.histogram),
        "request_time_per_output_token_seconds": (
            "Time after a request's first token for each of the others",
            stats.tpot_s.histogram,
        ),
        "e2e_request_latency_seconds": ("From arrival to the last token", stats.e2e_s.histogram),
        "request_queue_time_seconds": ("From arrival until it was first routed", stats.queued_s),
        "request_prefill_time_seconds": ("From routing to the first token", stats.prefill_s),
        "request_decode_time_seconds": ("From the first token to the last", stats.decode_s),
        "request_prompt_tokens": ("Prompt tokens of requests", stats.prompt_lengths),
        "request_generation_tokens": ("Tokens written for requests", stats.output_lengths),
    }


def _of_plan(report: CoordinatorReport, stats: RequestStats) -> Iterator[Metric]:
    outcomes = dict.fromkeys(["stop", "length", "cancelled"], 0) | stats.outcomes
    yield counter(
        "helix_coordinator_requests_total",
        "Requests that are over: stop, length, cancelled, or the code of the error",
        [({"outcome": outcome}, count) for outcome, count in sorted(outcomes.items())],
    )
    for name, words in _GAUGES:
        yield gauge(f"helix_coordinator_{name}", words, [({}, float(getattr(report, name)))])
    yield gauge(
        "helix_coordinator_node_up",
        "1 while the stage or the instances of a node answer",
        [({"node": name}, float(each.ready)) for name, each in report.nodes.items()],
    )
    yield gauge(
        "helix_coordinator_node_kv_promised_ratio",
        "Share of a node's KV cache that running requests may need",
        [({"node": name}, usage) for name, usage in _kv_usage(report).items()],
    )
    yield counter(
        "helix_coordinator_node_tokens_total",
        "Tokens that were routed through a node",
        [({"node": name}, each.tokens_total) for name, each in report.nodes.items()],
    )
    yield counter(
        "helix_coordinator_edge_tokens_total",
        "Tokens that were routed from one node to the next",
        [(_ends(edge), count) for edge, count in stats.edge_tokens_total.items()],
    )
    for make, name, words, field in _OF_INSTANCES:
        counts = {one: float(getattr(each, field)) for one, each in report.instances.items()}
        samples = [({"instance": one}, count) for one, count in counts.items()]
        yield make(f"helix_coordinator_instance_{name}", words, samples)


_GAUGES = (  # by the report's names
    ("generation", "Generation of the deployment that was asked of this coordinator; 0: none"),
    ("serving", "1 while requests are answered"),
    ("paused", "1 while new requests are kept waiting"),
    ("leaving_requests", "Requests that still run under the generation before"),
)
_OF_INSTANCES = (
    (gauge, "open", "1 while an instance takes requests", "open"),
    (gauge, "requests_running", "Requests sent to an instance and not ended", "requests"),
    (counter, "answers_total", "Answers begun by an instance", "answered_total"),
    (counter, "failures_total", "Requests that an instance failed to answer", "failed_total"),
    (counter, "output_tokens_total", "Tokens written by an instance", "output_tokens_total"),
)


def _kv_usage(report: CoordinatorReport) -> dict[str, float]:
    return {
        name: each.kv_estimate_token_layers / each.kv_capacity_token_layers
        for name, each in report.nodes.items()
        if each.kv_capacity_token_layers > 0
    }


def _ends(edge: str) -> dict[str, str]:
    source, _, target = edge.partition("->")
    names = {SOURCE: COORDINATOR, SINK: COORDINATOR}
    return {"source": names.get(source, source), "target": names.get(target, target)}
