"""How much longer nodes' steps took than by their profiles, from what stages told. Reads only."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from helixweb.deployment.models import Deployment
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.step_times import Steps, StepTimes
from helixweb.planning.stored import stored_plan, stored_problem
from planner.domain.placement import LayerRange
from planner.refinement import Busy

# One observation is of so long; shorter ones would be of few steps.
EVERY_S = 10
LOOKED_BACK = timedelta(minutes=10)
_COUNTERS = (
    "busy_s_total", "delayed_s_total", "stage_tokens_total", "stage_prompt_tokens_total",
    "steps_total", "uptime_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one node did over a while: `busy`, and in how many steps."""

    busy: Busy
    steps: int


def observed_steps(
    deployment: Deployment, *, now: datetime, since: timedelta = LOOKED_BACK
) -> dict[str, list[Observed]]:
    """By node of the placement, of the deployment's generation; without those without times."""
    problem, plan = stored_problem(deployment.plan), stored_plan(deployment.plan)
    times = StepTimes(problem)
    found: dict[str, list[Observed]] = {name: [] for name in plan.placement.layers}
    for before, after in pairwise(_samples(deployment, since=now - since)):
        age_s = max(0.0, (now - after.at).total_seconds())
        for name, layers in plan.placement.layers.items():
            observed = _between(
                before.nodes.get(name), after.nodes.get(name), times, name, layers, age_s=age_s
            )
            if observed is not None:
                found[name].append(observed)
    return found


def _samples(deployment: Deployment, *, since: datetime) -> Iterator[MetricSample]:
    """With details of nodes, at least EVERY_S apart, oldest first."""
    rows = MetricSample.objects.filter(
        cluster=deployment.cluster_id,
        generation=deployment.generation,
        second__gte=int(since.timestamp()),
        simulated_plan=None,
    ).order_by("second")
    seconds = rows.values_list("pk", "second")
    chosen, next_second = [], 0
    for pk, second in seconds:
        if second >= next_second:
            chosen.append(pk)
            next_second = second + EVERY_S
    taken = MetricSample.objects.filter(pk__in=chosen).only("second", "at", "nodes")
    yield from (row for row in taken.order_by("second") if row.nodes)


def _between(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    times: StepTimes,
    name: str,
    layers: LayerRange,
    *,
    age_s: float,
) -> Observed | None:
    """None: it did nothing, was started anew, or did not say."""
    if before is None or after is None:
        return None
    if any(said.get(key) is None for said in (before, after) for key in _COUNTERS[2:]):
        return None
    grown = {key: (after.get(key) or 0.0) - (before.get(key) or 0.0) for key in _COUNTERS}
    if grown["uptime_s"] <= 0 or grown["steps_total"] <= 0:
        return None
    prompts = int(grown["stage_prompt_tokens_total"])
    steps = Steps(
        steps=int(grown["steps_total"]),
        prompt_tokens=prompts,
        decode_tokens=int(grown["stage_tokens_total"]) - prompts,
    )
    # What it waited for a core is not its speed.
    busy_s = grown["busy_s_total"] - grown["delayed_s_total"]
    parts = times.expected_parts_s(name, steps, layers=layers)
    if parts is None or busy_s <= 0:
        return None
    busy = Busy(age_s=age_s, busy_s=busy_s, decode_s=parts[0], prompt_s=parts[1])
    return Observed(busy=busy, steps=steps.steps)
