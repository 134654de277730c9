"""Joins the reports of a cluster's coordinators into one, as if one had all requests. Pure.

Counts and rates are added. The joint median is between theirs: the mean is used, weighted by
tokens. The joint 95th percentile is at most the highest of theirs, which is used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from operator import add
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

ValueT = TypeVar("ValueT")

_TOTALS = (
    "requests_total", "requests_failed_total", "requests_rejected_total", "prompt_tokens_total",
    "output_tokens_total",
)  # fmt: skip
_GAUGES = (
    "requests_running", "requests_waiting", "leaving_requests", "prompt_tokens_per_s",
    "output_tokens_per_s",
)  # fmt: skip
_MEDIANS = ("ttft_p50_s", "itl_p50_s", "tpot_p50_s", "e2e_p50_s", "queue_p50_s")
_HIGHEST = (
    "ttft_p95_s", "itl_p95_s", "tpot_p95_s", "e2e_p95_s", "refused_generation",
    "coming_generation", "leaving_generation",
)  # fmt: skip
_OF_INSTANCES = (
    "requests", "answered_total", "failed_total", "output_tokens_total", "output_tokens_per_s",
)  # fmt: skip


def joint_report(
    heard: Sequence[CoordinatorReport], *, silent: Sequence[CoordinatorReport] = ()
) -> CoordinatorReport:
    """Join reports of `heard` coordinators, at least one. Of `silent` ones only totals are added,
    so that totals do not fall.

    The generation is one that all heard ones have, or had. Raises ValueError when none is heard.
    """
    if not heard:
        raise ValueError("no coordinator is heard; ask for a joint report only when one is")
    all_reports = [*heard, *silent]
    if len(all_reports) == 1:
        return heard[0]

    def of(name: str, reports: Sequence[CoordinatorReport] = heard) -> list[Any]:
        return [getattr(report, name) for report in reports]

    changes: dict[str, Any] = {
        "generation": min(filter(None, of("generation")), default=0),
        "serving": any(of("serving")),
        "paused": any(of("paused")),
        "message": "; ".join(dict.fromkeys(filter(None, of("message")))),
        "coming_missing": tuple(sorted(set(chain(*of("coming_missing"))))),
        "window_s": max(of("window_s")),
        "lost_nodes": {
            node: how
            for node, how in heard[0].lost_nodes.items()
            if all(node in names for names in of("lost_nodes"))
        },
        "nodes": _nodes(of("nodes"), counted=of("nodes", all_reports)),
        "draining": _merged(of("draining"), _both_drains),
        "instances": _merged(of("instances"), _both_instances),
        "links": _merged(of("links"), _busier),
        "edge_tokens_total": _merged(of("edge_tokens_total", all_reports), add),
        "latency_counts": _merged(of("latency_counts", all_reports), _both_counts),
        "requests": _oldest(chain(*of("requests"))),
        "traces": tuple(chain(*of("traces"))),
    }
    changes |= {name: sum(of(name, all_reports)) for name in _TOTALS}
    changes |= {name: sum(of(name)) for name in _GAUGES}
    changes |= {name: _median(of(name), of("output_tokens_per_s")) for name in _MEDIANS}
    changes |= {
        name: max((number for number in of(name) if number is not None), default=None)
        for name in _HIGHEST
    }
    return heard[0].model_copy(update=changes)


def _merged(
    mappings: Iterable[Mapping[str, ValueT]], both: Callable[[ValueT, ValueT], ValueT]
) -> dict[str, ValueT]:
    """Merge mappings; `both` combines two values of the same name."""
    found: dict[str, ValueT] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            found[name] = both(found[name], value) if name in found else value
    return found


def _oldest(requests: Iterable[ReportedRequest]) -> tuple[ReportedRequest, ...]:
    """As many as one coordinator lists, in its order."""
    ordered = sorted(
        requests, key=lambda one: (one.state is not LiveRequestState.WAITING, -one.age_s)
    )
    return tuple(ordered[:MOST_REQUESTS_REPORTED])


def _median(medians: Iterable[float | None], rates: Iterable[float]) -> float | None:
    weighted = [(one, rate) for one, rate in zip(medians, rates, strict=True) if one is not None]
    weight = sum(rate for _, rate in weighted)
    if weight:
        return sum(seconds * rate for seconds, rate in weighted) / weight
    return sum(seconds for seconds, _ in weighted) / len(weighted) if weighted else None


def _nodes(
    heard: Iterable[Mapping[str, NodeTraffic]], *, counted: Iterable[Mapping[str, NodeTraffic]]
) -> dict[str, NodeTraffic]:
    tokens = _merged(
        ({name: node.tokens_total for name, node in nodes.items()} for nodes in counted), add
    )
    return {
        name: node.model_copy(update={"tokens_total": tokens[name]})
        for name, node in _merged(heard, _both_nodes).items()
    }


def _both_nodes(one: NodeTraffic, other: NodeTraffic) -> NodeTraffic:
    """A node is ready if one coordinator hears of it; room is the same for all."""
    return NodeTraffic(
        kv_estimate_token_layers=one.kv_estimate_token_layers + other.kv_estimate_token_layers,
        kv_capacity_token_layers=max(one.kv_capacity_token_layers, other.kv_capacity_token_layers),
        ready=one.ready or other.ready,
        tokens_total=one.tokens_total + other.tokens_total,
    )


def _both_instances(one: InstanceTraffic, other: InstanceTraffic) -> InstanceTraffic:
    """Open if one coordinator sends there; what it says of itself it says to all alike."""
    better = other if other.open and not one.open else one
    sums = {name: getattr(one, name) + getattr(other, name) for name in _OF_INSTANCES}
    return better.model_copy(update=sums)


def _both_drains(one: DrainProgress, other: DrainProgress) -> DrainProgress:
    requests = one.requests + other.requests
    return DrainProgress(requests=requests, needed=one.needed or other.needed)


def _both_counts(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(one, other, fillvalue=0)))


def _busier(one: LinkStats, other: LinkStats) -> LinkStats:
    """The one that most was sent over, which knows most."""
    return other if sent_bytes(other) > sent_bytes(one) else one


def sent_bytes(stats: LinkStats) -> int:
    """All that went over a link for users."""
    return stats.urgent_bytes_total + stats.bulk_bytes_total
