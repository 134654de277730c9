"""Work of nodes between two samples, and its expected time by their profiles.

A node's capacity (T_j) holds for large batches. At low load batches are small and a step takes
almost the same time for each of them, so all nodes would seem slow, each by a different factor. The
times of a profile hold for any batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from helixweb.deployment.models import Deployment
from helixweb.monitoring.models import MetricSample
from helixweb.planning.stored import stored_plan, stored_problem
from planner import Busy, InvalidProblem, LayerRange, LayerTimes, Problem, layer_times_of

# One observation is of so long; shorter ones would be of few steps.
EVERY_S = 10
LOOKED_BACK = timedelta(minutes=10)

# What a sample stores of a node: `NodeSample.to_json`.
Counters = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of a stage over some time, and the tokens in them."""

    steps: int
    prompt_tokens: int
    decode_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of a node over `elapsed_s`. `steps` None: not reported; `expected_s`: expected seconds
    of its decodes and of its prompts, None without steps, or without times in its profile."""

    elapsed_s: float
    busy_s: float
    delayed_s: float
    tokens: int
    steps: Steps | None
    expected_s: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Work of one node over some time: `busy`, and the number of steps."""

    busy: Busy
    steps: int


def parts_s(
    steps: Steps, times: LayerTimes, *, layers: int, has_head: bool, mean_prompt_tokens: float
) -> tuple[float, float]:
    """Seconds that one or more should have taken, for their decodes and for their prompts: decodes
    spread evenly, prompts whole. Stages do not count what they do beside steps as busy.

    `has_head`: the model's last layer is among the `layers`.
    """
    times = replace(times, handling_s=0.0)
    # Each step has it once, with its decodes.
    shared_s = times.shared_s(has_head=has_head) if steps.decode_tokens else 0.0
    times = times.held(layers, has_head=has_head)
    decodes_s = steps.steps * times.decode_s(steps.decode_tokens / steps.steps)
    prompts = steps.prompt_tokens / mean_prompt_tokens
    prompt_s = layers * times.prompt_s(mean_prompt_tokens) - shared_s
    return layers * decodes_s, prompts * prompt_s


class StepTimes:
    """Step times of the nodes of one problem; the times of a profile are read once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._by_profile: dict[str, LayerTimes | None] = {}

    def expected_s(
        self, node: str, steps: Steps | None, *, layers: LayerRange
    ) -> tuple[float, float] | None:
        """`parts_s` of `node`; None without steps, or times in its profile."""
        if steps is None or steps.steps <= 0:
            return None
        profile = self._problem.profile_of(node).name
        if profile not in self._by_profile:
            try:
                self._by_profile[profile] = layer_times_of(self._problem, node)
            except InvalidProblem:
                self._by_profile[profile] = None
        times = self._by_profile[profile]
        if times is None:
            return None
        return parts_s(
            steps,
            times,
            layers=len(layers),
            has_head=layers.end == self._problem.model.num_layers,
            mean_prompt_tokens=self._problem.workload.mean_prompt_tokens,
        )

    def work(
        self, node: str, layers: LayerRange, before: Counters | None, after: Counters | None
    ) -> Work | None:
        """Work of a node; None if one of the samples lacks it, or it was started between them."""
        if not before or not after or None in (before.get("uptime_s"), after.get("uptime_s")):
            return None
        elapsed_s = _grown(before, after, "uptime_s")
        if elapsed_s <= 0:
            return None
        tokens = int(_grown(before, after, "stage_tokens_total"))
        steps = None
        if None not in (before.get("steps_total"), after.get("steps_total")):
            prompts = int(_grown(before, after, "stage_prompt_tokens_total"))
            steps = Steps(
                steps=int(_grown(before, after, "steps_total")),
                prompt_tokens=prompts,
                decode_tokens=tokens - prompts,
            )
        return Work(
            elapsed_s=elapsed_s,
            busy_s=_grown(before, after, "busy_s_total"),
            delayed_s=_grown(before, after, "delayed_s_total"),
            tokens=tokens,
            steps=steps,
            expected_s=self.expected_s(node, steps, layers=layers),
        )


def _grown(before: Counters, after: Counters, counter: str) -> float:
    """Between two samples; what one did not say counts as nothing."""
    return (after.get(counter) or 0.0) - (before.get(counter) or 0.0)


def observed_steps(deployment: Deployment, *, now: datetime) -> dict[str, list[Observed]]:
    """By node of the placement, of the deployment's generation; without those without times."""
    plan, times = stored_plan(deployment.plan), StepTimes(stored_problem(deployment.plan))
    found: dict[str, list[Observed]] = {name: [] for name in plan.placement.layers}
    for before, after in pairwise(_samples(deployment, since=now - LOOKED_BACK)):
        age_s = max(0.0, (now - after.at).total_seconds())
        for name, layers in plan.placement.layers.items():
            work = times.work(name, layers, before.nodes.get(name), after.nodes.get(name))
            if work is None or work.steps is None or work.expected_s is None:
                continue
            # What it waited for a core is not its speed.
            busy_s = work.busy_s - work.delayed_s
            if busy_s > 0:
                decode_s, prompt_s = work.expected_s
                busy = Busy(age_s=age_s, busy_s=busy_s, decode_s=decode_s, prompt_s=prompt_s)
                found[name].append(Observed(busy=busy, steps=work.steps.steps))
    return found


def _samples(deployment: Deployment, *, since: datetime) -> Iterator[MetricSample]:
    """Samples with details of nodes, at least EVERY_S apart, oldest first."""
    rows = MetricSample.unscoped.filter(
        cluster=deployment.cluster_id,
        generation=deployment.generation,
        second__gte=int(since.timestamp()),
        simulated_plan=None,
    ).order_by("second")
    chosen, next_second = [], 0
    for pk, second in rows.values_list("pk", "second"):
        if second >= next_second:
            chosen.append(pk)
            next_second = second + EVERY_S
    taken = MetricSample.unscoped.filter(pk__in=chosen).only("second", "at", "nodes")
    yield from (row for row in taken.order_by("second") if row.nodes)
