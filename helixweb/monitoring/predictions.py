"""Gathers what was predicted and measured of a deployment, for `agreement.py`. Reads only."""

import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db.models import Avg, QuerySet

from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Origin, Profile
from helixweb.monitoring.agreement import (
    LINK_OFF,
    Agreement,
    Compared,
    NodeSteps,
    Quantity,
    figure,
    mean_tokens,
)
from helixweb.monitoring.models import LivePrediction, MetricSample
from helixweb.monitoring.moment import link_loads
from helixweb.monitoring.node_work import Observed, observed_steps
from helixweb.monitoring.predicting import (
    PresentLoad,
    prediction_at,
    present_load,
    recent_samples,
)
from helixweb.planning.services.simulating import forecast_from_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner.roofline import is_estimated

LEAST_WINDOWS = 3
LEAST_BUSY_S = 1.0
RATES_COVER_S = 10  # a sample's rates are means over the coordinator's last seconds


def agreement_of(deployment: Deployment, *, now: datetime) -> Agreement:
    """`deployment` with its plan."""
    load = present_load(deployment, now=now)
    workload = stored_problem(deployment.plan).workload
    prediction = None if load is None else prediction_at(deployment, load, now=now)
    return Agreement(
        running=load and load.running,
        predicted_running=None if prediction is None else prediction.running,
        figures=tuple(_figures(deployment, load, prediction, now=now)),
        nodes=tuple(_nodes(deployment, now=now)),
        links=tuple(_links(deployment, now=now)),
        lengths=(
            mean_tokens("prompt", workload.mean_prompt_tokens, load and load.mean_prompt_tokens),
            mean_tokens("decode", workload.mean_output_tokens, load and load.mean_output_tokens),
        ),
    )


def _figures(
    deployment: Deployment,
    load: PresentLoad | None,
    prediction: LivePrediction | None,
    *,
    now: datetime,
) -> Iterator[Compared]:
    """Both at the same load: without one there is nothing to measure, and a prediction of another
    load is none of this one."""
    predicted: tuple[float | None, ...] = (None, None, None)
    measured = predicted
    if load is not None:
        recent = recent_samples(deployment, now=now)
        means = recent.aggregate(ttft=Avg("ttft_p50_s"), tpot=Avg("tpot_p50_s"))
        measured = (_output_while_busy(recent), means["ttft"], means["tpot"])
    if prediction is not None:
        forecast = forecast_from_json(prediction.forecast)
        predicted = (
            forecast.decode_tokens_per_s, forecast.ttft.p50_s or None, forecast.tpot.p50_s or None,
        )  # fmt: skip
    yield from map(figure, Quantity, predicted, measured)


def _output_while_busy(samples: QuerySet[MetricSample]) -> float | None:
    """Mean output tokens/s of samples whose rate covers no idle time; None: there is none."""
    moments = list(
        samples.order_by("second").values_list(
            "second", "running", "waiting", "output_tokens_per_s"
        )
    )
    rates, busy_since = [], None
    for second, running, waiting, output in moments:
        if not running + waiting:
            busy_since = None
            continue
        busy_since = second if busy_since is None else busy_since
        if second - busy_since >= RATES_COVER_S:
            rates.append(output)
    return statistics.mean(rates) if rates else None


def _nodes(deployment: Deployment, *, now: datetime) -> Iterator[NodeSteps]:
    problem, plan = stored_problem(deployment.plan), stored_plan(deployment.plan)
    observed = observed_steps(deployment, now=now)
    measured = _measured_profiles(deployment)
    for name in plan.placement.layers:
        profile = problem.profile_of(name).name
        seen = observed[name]
        busy_s = sum(one.busy.busy_s for one in seen)
        foreseen_s = sum(one.busy.decode_s + one.busy.prompt_s for one in seen)
        steps = sum(one.steps for one in seen)
        known = len(seen) >= LEAST_WINDOWS and busy_s >= LEAST_BUSY_S and foreseen_s > 0
        yield NodeSteps(
            name=name,
            profile=profile,
            predicted=1e3 * foreseen_s / steps if known else None,
            measured=1e3 * busy_s / steps if known else None,
            error=_standard_error(seen) if known else None,
            estimated=profile not in measured or is_estimated(problem.profile_of(name)),
        )


def _standard_error(seen: Sequence[Observed]) -> float:
    """Standard error of the overall ratio, from the spread of single windows."""
    ratios = [
        one.busy.busy_s / foreseen_s
        for one in seen
        if (foreseen_s := one.busy.decode_s + one.busy.prompt_s) > 0
    ]
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf


def _measured_profiles(deployment: Deployment) -> set[str]:
    """Names of those that are not mere estimates."""
    rows = Profile.unscoped.filter(cluster=deployment.cluster_id, model=deployment.model_id)
    return set(rows.exclude(origin=Origin.ESTIMATED).values_list("name", flat=True))


def _links(deployment: Deployment, *, now: datetime) -> Iterator[Compared]:
    for link in link_loads(deployment, now=now):
        if link.measured_bytes_per_s > 0:
            yield Compared(
                name=link.name,
                predicted=link.counted_bytes_per_s,
                measured=link.measured_bytes_per_s,
                tolerance=LINK_OFF,
                worse=-1,
                is_sure=link.seen_full,
            )
