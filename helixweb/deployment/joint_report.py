"""What the coordinators of a cluster tell together, as one would that had all requests. Pure.

Counts and rates add up. A median of all lies between theirs: it is taken for their mean, weighted
by tokens; a 95th percentile of all is not above the highest of theirs, which is told.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from runtime.protocol.control import (
    MOST_REQUESTS_REPORTED,
    CoordinatorReport,
    DrainProgress,
    LinkStats,
    LiveRequestState,
    NodeTraffic,
    ReportedRequest,
)
from runtime.protocol.instance_orders import InstanceTraffic

NumberT = TypeVar("NumberT", int, float)

_TOTALS = (
    "requests_total", "requests_failed_total", "requests_rejected_total", "prompt_tokens_total",
    "output_tokens_total",
)  # fmt: skip
_GAUGES = (
    "requests_running", "requests_waiting", "leaving_requests", "prompt_tokens_per_s",
    "output_tokens_per_s",
)  # fmt: skip
_MEDIANS = ("ttft_p50_s", "itl_p50_s", "tpot_p50_s", "e2e_p50_s", "queue_p50_s")
_TAILS = ("ttft_p95_s", "itl_p95_s", "tpot_p95_s", "e2e_p95_s")


def joint_report(
    heard: Sequence[CoordinatorReport], *, silent: Sequence[CoordinatorReport] = ()
) -> CoordinatorReport:
    """Of at least one that is `heard`; of `silent` ones only what was counted still counts, so that
    totals do not fall.

    The generation is one that all heard ones have, or had. Raises ValueError when none is heard.
    """
    if not heard:
        raise ValueError("no coordinator is heard; ask for a joint report only when one is")
    everybody = [*heard, *silent]
    if len(everybody) == 1:
        return heard[0]
    generations = [report.generation for report in heard if report.generation]
    changes: dict[str, Any] = {
        "generation": min(generations, default=0),
        "serving": any(report.serving for report in heard),
        "message": "; ".join(dict.fromkeys(filter(None, (one.message for one in heard)))),
        "refused_generation": _highest(report.refused_generation for report in heard),
        "coming_generation": _highest(report.coming_generation for report in heard),
        "coming_missing": tuple(
            sorted({node for report in heard for node in report.coming_missing})
        ),
        "leaving_generation": _highest(report.leaving_generation for report in heard),
        "draining": _draining(heard),
        "paused": any(report.paused for report in heard),
        "window_s": max(report.window_s for report in heard),
        "nodes": _nodes(heard, silent),
        "lost_nodes": {
            node: how
            for node, how in heard[0].lost_nodes.items()
            if all(node in report.lost_nodes for report in heard)
        },
        "instances": _instances(heard),
        "edge_tokens_total": _sums(report.edge_tokens_total for report in everybody),
        "latency_counts": _latency_counts(everybody),
        "requests": _oldest(request for report in heard for request in report.requests),
        "traces": tuple(trace for report in heard for trace in report.traces),
        "links": _links(heard),
    }
    changes |= {name: sum(getattr(each, name) for each in everybody) for name in _TOTALS}
    changes |= {name: sum(getattr(each, name) for each in heard) for name in _GAUGES}
    changes |= {name: _median(heard, name) for name in _MEDIANS}
    changes |= {name: _highest(getattr(each, name) for each in heard) for name in _TAILS}
    return heard[0].model_copy(update=changes)


def _oldest(requests: Iterable[ReportedRequest]) -> tuple[ReportedRequest, ...]:
    """As many as one coordinator lists, in its order."""
    ordered = sorted(
        requests, key=lambda one: (one.state is not LiveRequestState.WAITING, -one.age_s)
    )
    return tuple(ordered[:MOST_REQUESTS_REPORTED])


def _highest(numbers: Iterable[NumberT | None]) -> NumberT | None:
    """The highest; None where nobody says any."""
    return max((number for number in numbers if number is not None), default=None)


def _median(reports: Sequence[CoordinatorReport], name: str) -> float | None:
    told: list[tuple[float, float]] = [
        (getattr(report, name), report.output_tokens_per_s)
        for report in reports
        if getattr(report, name) is not None
    ]
    if not told:
        return None
    weight = sum(rate for _, rate in told)
    if weight == 0:
        return sum(seconds for seconds, _ in told) / len(told)
    return sum(seconds * rate for seconds, rate in told) / weight


def _sums(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def _latency_counts(reports: Sequence[CoordinatorReport]) -> dict[str, tuple[int, ...]]:
    names = dict.fromkeys(name for report in reports for name in report.latency_counts)
    return {
        name: tuple(
            map(
                sum,
                zip_longest(
                    *(report.latency_counts.get(name, ()) for report in reports), fillvalue=0
                ),
            )
        )
        for name in names
    }


def _nodes(
    heard: Sequence[CoordinatorReport], silent: Sequence[CoordinatorReport]
) -> dict[str, NodeTraffic]:
    """A node is ready if one coordinator hears of it; room is the same for all."""
    counted = _sums(
        {name: node.tokens_total for name, node in report.nodes.items()}
        for report in (*heard, *silent)
    )
    nodes: dict[str, NodeTraffic] = {}
    for report in heard:
        for name, node in report.nodes.items():
            before = nodes.get(name)
            nodes[name] = NodeTraffic(
                kv_estimate_token_layers=node.kv_estimate_token_layers
                + (before.kv_estimate_token_layers if before else 0.0),
                kv_capacity_token_layers=max(
                    node.kv_capacity_token_layers,
                    before.kv_capacity_token_layers if before else 0.0,
                ),
                tokens_total=counted[name],
                ready=node.ready or bool(before and before.ready),
            )
    return nodes


def _instances(heard: Sequence[CoordinatorReport]) -> dict[str, InstanceTraffic]:
    """Open if one coordinator sends there; what it says of itself it says to all alike."""
    instances: dict[str, InstanceTraffic] = {}
    for report in heard:
        for name, one in report.instances.items():
            before = instances.get(name)
            if before is None:
                instances[name] = one
                continue
            better = one if one.open and not before.open else before
            instances[name] = better.model_copy(
                update={
                    "requests": before.requests + one.requests,
                    "answered_total": before.answered_total + one.answered_total,
                    "failed_total": before.failed_total + one.failed_total,
                    "output_tokens_total": before.output_tokens_total + one.output_tokens_total,
                    "output_tokens_per_s": before.output_tokens_per_s + one.output_tokens_per_s,
                }
            )
    return instances


def _draining(reports: Sequence[CoordinatorReport]) -> dict[str, DrainProgress]:
    draining: dict[str, DrainProgress] = {}
    for report in reports:
        for name, progress in report.draining.items():
            before = draining.get(name)
            draining[name] = DrainProgress(
                requests=progress.requests + (before.requests if before else 0),
                needed=progress.needed or bool(before and before.needed),
            )
    return draining


def _links(reports: Sequence[CoordinatorReport]) -> dict[str, LinkStats]:
    """Of several to one stage the one that most was sent over, which knows most."""
    links: dict[str, LinkStats] = {}
    for report in reports:
        for name, stats in report.links.items():
            if name not in links or sent_bytes(stats) > sent_bytes(links[name]):
                links[name] = stats
    return links


def sent_bytes(stats: LinkStats) -> int:
    """All that went over a link for somebody."""
    return stats.urgent_bytes_total + stats.bulk_bytes_total
