"""Computes recent work of nodes from counters of stages and coordinator. Pure.

Heartbeats come every two seconds and reports every second, so a stage's counters are often those
of the previous report: then the previous result is used.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helixweb.monitoring.models import MetricSample
from planner import SOURCE
from runtime.protocol.control import CoordinatorReport, NodeTraffic, StageStats

# Rates over less would be of any size, beyond what JSON can say.
SHORTEST_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """One node at the time of a report.

    `busy_ratio` (computing ÷ time) and `tokens_per_s` (prompt and output) are between its last two
    heartbeats; `flow_share` is the share of the cluster's tokens that passed it over the last
    minute; `kv_promised_ratio` what running requests may need ÷ all its pages, as the coordinator
    counts. None: not known. The rest are the counters they come from; `heard_second` is when the
    stage's counters last moved (Unix seconds).
    """

    kv_used_pages: int | None = None
    kv_total_pages: int | None = None
    sequences: int | None = None
    busy_ratio: float | None = None
    tokens_per_s: float | None = None
    flow_share: float | None = None
    kv_promised_ratio: float | None = None
    heard_second: int | None = None
    uptime_s: float | None = None
    busy_s_total: float | None = None
    delayed_s_total: float | None = None
    stage_tokens_total: int | None = None
    stage_prompt_tokens_total: int | None = None
    steps_total: int | None = None
    routed_tokens_total: int = 0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def entered_tokens_total(report: CoordinatorReport) -> int:
    """Tokens that left the coordinator for a first stage, since it started."""
    return sum(
        tokens
        for edge, tokens in report.edge_tokens_total.items()
        if edge.startswith(f"{SOURCE}->")
    )


def node_samples(
    report: CoordinatorReport,
    stats: Mapping[str, StageStats],
    *,
    second: int,
    previous: MetricSample | None,
    reference: MetricSample | None,
    silent_after_s: float,
) -> dict[str, NodeSample]:
    """Samples of every node that the coordinator routes to or that has a ready stage, by name.

    `previous` is the last sample; `reference` is about a minute old, and shares of flow are counted
    since then. Both are of the same coordinator and generation.
    """
    entered = entered_tokens_total(report)
    samples = {}
    for name in sorted({*report.nodes, *stats}):
        traffic = report.nodes.get(name)
        routed = traffic.tokens_total if traffic else 0
        before = None if previous is None else previous.nodes.get(name)
        stage = _stage_sample(
            stats.get(name),
            None if before is None else NodeSample(**before),
            second=second,
            silent_after_s=silent_after_s,
        )
        samples[name] = dataclasses.replace(
            stage,
            routed_tokens_total=routed,
            flow_share=_flow_share(name, routed, entered, reference),
            kv_promised_ratio=_kv_promised_ratio(traffic),
        )
    return samples


def _stage_sample(
    stats: StageStats | None,
    previous: NodeSample | None,
    *,
    second: int,
    silent_after_s: float,
) -> NodeSample:
    if stats is None:
        return NodeSample()
    tokens = stats.prompt_tokens_total + stats.decode_tokens_total
    heard, busy_ratio, tokens_per_s = second, None, None
    if previous is not None and previous.uptime_s is not None:
        elapsed_s = stats.uptime_s - previous.uptime_s
        if elapsed_s == 0 and previous.heard_second is not None:
            heard = previous.heard_second
            busy_ratio, tokens_per_s = previous.busy_ratio, previous.tokens_per_s
        elif elapsed_s >= SHORTEST_S:  # below zero: the stage was started again
            busy_ratio = min(
                1.0, max(0.0, stats.busy_s_total - (previous.busy_s_total or 0.0)) / elapsed_s
            )
            tokens_per_s = max(0, tokens - (previous.stage_tokens_total or 0)) / elapsed_s
    counters = NodeSample(
        heard_second=heard,
        uptime_s=stats.uptime_s,
        busy_s_total=stats.busy_s_total,
        delayed_s_total=stats.delayed_s_total,
        stage_tokens_total=tokens,
        stage_prompt_tokens_total=stats.prompt_tokens_total,
        steps_total=stats.steps_total,
    )
    if second - heard > silent_after_s:
        return counters
    return dataclasses.replace(
        counters,
        kv_used_pages=stats.kv_pages_used,
        kv_total_pages=stats.kv_pages_total,
        sequences=stats.sequences,
        busy_ratio=busy_ratio,
        tokens_per_s=tokens_per_s,
    )


def _kv_promised_ratio(traffic: NodeTraffic | None) -> float | None:
    if traffic is None or traffic.kv_capacity_token_layers < 1:
        return None  # not room for one token of one layer
    return traffic.kv_estimate_token_layers / traffic.kv_capacity_token_layers


def _flow_share(
    name: str, routed: int, entered: int, reference: MetricSample | None
) -> float | None:
    if reference is None or name not in reference.nodes:
        return None
    passed = routed - reference.nodes[name].get("routed_tokens_total", 0)
    through = entered - reference.entered_tokens_total
    # A coordinator that was started again counts from zero.
    return passed / through if 0 <= passed <= through and through > 0 else None
