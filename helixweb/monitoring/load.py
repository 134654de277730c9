"""What limits a cluster now: gathers its newest numbers for `bottleneck.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helixweb.inventory.models import Cluster, Node
from helixweb.monitoring.bottleneck import Finding, Load, NodeLoad, bottleneck
from helixweb.monitoring.history import current_sample
from helixweb.monitoring.link_loads import link_loads
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import MonitoredNode, Serving, serving_of
from helixweb.monitoring.services import detailed
from helixweb.monitoring.step_times import Steps, StepTimes
from helixweb.monitoring.traces import transfer_ratios
from helixweb.planning.stored import kept
from planner.domain.plan import Plan
from planner.domain.problem import Problem

# Rates of single heartbeats jump; over this long they are steady enough to be judged.
LATELY_S = 6


# What a sample stores of a node: `NodeSample.to_json`.
_Counters = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    busy_ratio: float
    tokens_per_s: float
    expected_busy_ratio: float | None
    delayed_ratio: float


def finding_of(cluster: Cluster, *, now: datetime) -> Finding | None:
    """In words; None while nothing is served or nothing reports."""
    sample = current_sample(cluster, now=now)
    serving = serving_of(cluster, sample)
    return find(cluster, serving, sample, now=now)


_OF_HOST = ("name", "cluster", "data_endpoint", "hardware")


def _host(node: Node) -> str:
    """The machine by its name and the address that others dial: names alone may repeat."""
    name = (node.hardware or {}).get("hostname", "")
    return f"{name} ({node.host})" if name and node.host != name else node.host


def find(
    cluster: Cluster, serving: Serving | None, sample: MetricSample | None, *, now: datetime
) -> Finding | None:
    """The same, for who has read `serving` and `sample` already."""
    if serving is None or sample is None:
        return None
    lately = _lately(cluster, serving, sample)
    hosts = {node.name: _host(node) for node in cluster.nodes.only(*_OF_HOST)}
    load = Load(
        nodes=[
            NodeLoad(
                name=node.name,
                capacity_tokens_per_s=node.capacity_tokens_per_s,
                busy_ratio=lately.get(node.name, node).busy_ratio if _heard(node) else None,
                tokens_per_s=lately.get(node.name, node).tokens_per_s,
                expected_busy_ratio=lately[node.name].expected_busy_ratio
                if node.name in lately
                else None,
                delayed_ratio=lately[node.name].delayed_ratio if node.name in lately else 0.0,
                host=hosts.get(node.name, ""),
                kv_used_ratio=node.kv_used_ratio,
                kv_promised_ratio=node.kv_promised_ratio,
            )
            for node in serving.nodes
            if node.planned_tokens_per_s > 0
        ],
        running=sample.running,
        waiting=sample.waiting,
        transfer_ratios=transfer_ratios(cluster, now=now),
        links=[] if serving.deployment is None else link_loads(serving.deployment, now=now),
    )
    return bottleneck(load)


@kept
def _step_times(problem: Problem, _plan: Plan) -> StepTimes:
    return StepTimes(problem)


def _heard(node: MonitoredNode) -> bool:
    return node.busy_ratio is not None


def _lately(cluster: Cluster, serving: Serving, sample: MetricSample) -> dict[str, _Rates]:
    """By node, between the counters of some seconds ago and now; without nodes started since."""
    before = detailed(
        MetricSample.objects.filter(
            cluster=cluster,
            second__lte=sample.second - LATELY_S,
            second__gte=sample.second - 2 * LATELY_S,
            generation=sample.generation,
            simulated_plan=None,
        ).order_by("-second")
    )
    if before is None or sample.simulated_plan_id is not None:
        return {}
    rates, times = {}, _step_times(serving.row)
    for name in sample.nodes.keys() & before.nodes.keys():
        now, then = sample.nodes[name], before.nodes[name]
        elapsed_s = _grown(now, then, "uptime_s")
        if now.get("uptime_s") is None or then.get("uptime_s") is None or elapsed_s <= 0:
            continue
        busy_s = _grown(now, then, "busy_s_total")
        delayed_s = _grown(now, then, "delayed_s_total")
        tokens = _grown(now, then, "stage_tokens_total")
        steps, layers = _steps(now, then), serving.plan.placement.layers.get(name)
        expected_s = None
        if steps is not None and layers is not None:
            expected_s = times.expected_s(name, steps, layers=layers)
        rates[name] = _Rates(
            busy_ratio=min(1.0, max(0.0, busy_s / elapsed_s)),
            tokens_per_s=max(0, tokens) / elapsed_s,
            expected_busy_ratio=None if expected_s is None else expected_s / elapsed_s,
            delayed_ratio=max(0.0, delayed_s) / elapsed_s,
        )
    return rates


def _steps(now: _Counters, then: _Counters) -> Steps | None:
    """What the stage did between; None: it did not say."""
    if now.get("steps_total") is None or then.get("steps_total") is None:
        return None
    prompt_tokens = int(_grown(now, then, "stage_prompt_tokens_total"))
    return Steps(
        steps=int(_grown(now, then, "steps_total")),
        prompt_tokens=prompt_tokens,
        decode_tokens=int(_grown(now, then, "stage_tokens_total")) - prompt_tokens,
    )


def _grown(now: _Counters, then: _Counters, counter: str) -> float:
    """Between two samples; what one did not say counts as nothing."""
    return (now.get(counter) or 0.0) - (then.get(counter) or 0.0)
