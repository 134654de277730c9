"""Predicts serving deployments at their current load, by occasional simulations.

A plan's own forecast is for requests that always wait; what is measured is of the load there was.
"""

import itertools
import logging
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Avg, F, Q, QuerySet

from helixweb.access.scope import WHOLE_SITE
from helixweb.deployment.models import Deployment, Status
from helixweb.monitoring.models import LivePrediction, MetricSample, TracedRequest
from helixweb.planning.services.studies import forecast_to_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner import RUNTIME_POLICY, Forecast, PlannerError, SimulationOptions, simulate
from planner.workload import Backlog, Lengths

logger = logging.getLogger(__name__)
# Load and figures are means over so long; lengths are those of the last requests.
LOOKED_BACK = timedelta(seconds=60)
LENGTHS_OF = 200
IS_BUSY = Q(running__gt=0) | Q(waiting__gt=0)
LEAST_RUNNING = 0.5
# A prediction is reused for a load that differs by less, and for so long.
CHANGED = 0.15
KEPT_FOR = timedelta(minutes=10)
# Larger ones take the worker longer than is worth it.
MOST_NODES, MOST_RUNNING = 100, 1000
WARM_UP_S, WINDOW_S = 60.0, 120.0


class PresentLoad(NamedTuple):
    """Requests at once, running or waiting, while there was any; and their mean lengths."""

    running: float
    mean_prompt_tokens: float
    mean_output_tokens: float


def serving() -> QuerySet[Deployment]:
    """Deployments that answer requests, with their plans."""
    return Deployment.light(WHOLE_SITE).filter(status__in=(Status.READY, Status.DEGRADED))


def predict_live(now: datetime) -> None:
    """Predict all serving deployments with requests."""
    for deployment in serving():
        load = present_load(deployment, now=now)
        if load is None or prediction_at(deployment, load, now=now) is not None:
            continue
        try:
            forecast = forecast_at(deployment, load)
        except PlannerError as error:
            logger.warning("%s cannot be predicted: %s", deployment, error)
            continue
        if forecast is not None:
            LivePrediction.unscoped.update_or_create(
                deployment=deployment,
                defaults={
                    "generation": deployment.generation,
                    **load._asdict(),
                    "forecast": forecast_to_json(forecast),
                    "at": now,
                },
            )


def recent_samples(deployment: Deployment, *, now: datetime) -> QuerySet[MetricSample]:
    """Samples of the present generation, over the time of the means of load and figures."""
    return MetricSample.unscoped.filter(
        cluster=deployment.cluster_id,
        generation=deployment.generation,
        second__gte=int((now - LOOKED_BACK).timestamp()),
        simulated_plan=None,
    )


def present_load(deployment: Deployment, *, now: datetime) -> PresentLoad | None:
    """The current load; None if there is hardly any."""
    here = F("running") + F("waiting")
    found = recent_samples(deployment, now=now).aggregate(
        mean=Avg(here), while_busy=Avg(here, filter=IS_BUSY)
    )
    if found["mean"] is None or found["mean"] < LEAST_RUNNING:
        return None
    ended = TracedRequest.unscoped.filter(
        cluster=deployment.cluster_id, generation=deployment.generation, tpot_s__isnull=False
    ).order_by("-arrived_at", "-pk")
    lengths = list(ended.values_list("prompt_tokens", "output_tokens")[:LENGTHS_OF])
    if not lengths:
        return None
    prompts, outputs = zip(*lengths, strict=True)
    return PresentLoad(
        running=found["while_busy"],
        mean_prompt_tokens=sum(prompts) / len(prompts),
        mean_output_tokens=sum(outputs) / len(outputs),
    )


def forecast_at(deployment: Deployment, load: PresentLoad) -> Forecast | None:
    """A simulation at this load; None if the deployment is too large for repeated simulation, or
    has whole-model instances, which the simulator does not know. Raises PlannerError."""
    problem, plan = stored_problem(deployment.plan), stored_plan(deployment.plan)
    running = max(1, round(load.running))
    if plan.instances or len(problem.cluster.nodes) > MOST_NODES or running > MOST_RUNNING:
        return None
    lengths = Lengths(
        prompt_tokens=max(1, round(load.mean_prompt_tokens)),
        output_tokens=max(1, round(load.mean_output_tokens)),
    )
    return simulate(
        problem,
        placement=plan.placement,
        routing_weights=plan.routing_weights,
        demand=Backlog(
            lengths=itertools.repeat(lengths),
            prompts_in_flight=running,
            requests_in_flight=running,
        ),
        policy=RUNTIME_POLICY,
        partial_inference=plan.partial_inference,
        options=SimulationOptions(
            warm_up_s=WARM_UP_S, window_s=WINDOW_S, page_tokens=deployment.page_tokens
        ),
    )


def prediction_at(
    deployment: Deployment, load: PresentLoad, *, now: datetime
) -> LivePrediction | None:
    """The prediction for this load; None: there is none, or it is for a different load."""
    row = LivePrediction.unscoped.filter(
        deployment=deployment, generation=deployment.generation, at__gt=now - KEPT_FOR
    ).first()
    is_of_load = row is not None and all(
        abs(getattr(row, name) - getattr(load, name)) <= CHANGED * getattr(row, name)
        for name in load._fields
    )
    return row if is_of_load else None
