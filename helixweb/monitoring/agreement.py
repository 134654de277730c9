"""Whether what was predicted of a deployment holds, and which assumptions do not.

`agreement_of` gathers the numbers; the classes decide from them alone.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db.models import Avg, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.charts.chart import bit_rate_text
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Origin, Profile
from helixweb.monitoring.models import LivePrediction, MetricSample
from helixweb.monitoring.moment import link_loads
from helixweb.monitoring.node_work import Observed, observed_steps
from helixweb.monitoring.predicting import (
    PresentLoad,
    prediction_at,
    present_load,
    recent_samples,
)
from helixweb.planning.services.studies import forecast_from_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner.roofline import is_estimated

# Measured steps spread; by less than this, and by less than twice its standard error, a node is as
# its profile says.
STEP_OFF = 0.15
LENGTH_OFF = 0.3
LINK_OFF = 0.2
# What the benchmark of predictions asks of them.
THROUGHPUT_OFF = 0.15
LATENCY_OFF = 0.2
_SURE = 2.0
LEAST_WINDOWS = 3
LEAST_BUSY_S = 1.0
RATES_COVER_S = 10  # a sample's rates are means over the coordinator's last seconds


class Quantity(StrEnum):
    """A quantity that is predicted and measured."""

    OUTPUT = gettext_noop("output tokens/s")
    TTFT = gettext_noop("TTFT, median")
    TPOT = gettext_noop("TPOT, median")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A number that was predicted, or that the plan counts on, and the same measured; None: not
    known. `worse`: above 0 if more is, below if less is, 0 if both are. Without `is_sure` it was
    not seen to be less.
    """

    name: str
    predicted: float | None
    measured: float | None
    tolerance: float
    worse: int = 0
    is_sure: bool = True

    @property
    def off(self) -> float | None:
        """(measured - predicted) / predicted; None: unknown."""
        if not self.predicted or self.measured is None:
            return None
        return self.measured / self.predicted - 1

    @property
    def off_text(self) -> str:
        """+12 %, empty where it is not known."""
        return "" if self.off is None or self.holds is None else f"{self.off:+.0%}"

    @property
    def holds(self) -> bool | None:
        """True also where it is better than predicted."""
        if self.off is None or (self.off < 0 and not self.is_sure):
            return None
        return (self.worse * self.off if self.worse else abs(self.off)) <= self.tolerance


def figure(quantity: Quantity, predicted: float | None, measured: float | None) -> Compared:
    """Tokens/s, or seconds, at the load there was."""
    is_rate = quantity is Quantity.OUTPUT
    return Compared(
        name=quantity,
        predicted=predicted,
        measured=measured,
        tolerance=THROUGHPUT_OFF if is_rate else LATENCY_OFF,
        worse=-1 if is_rate else 1,
    )


def mean_tokens(phase: str, planned: float, measured: float | None) -> Compared:
    """Tokens of requests that a plan was computed for, and of those that came; None: none came."""
    return Compared(name=phase, predicted=planned, measured=measured, tolerance=LENGTH_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSteps(Compared):
    """Milliseconds of a node's mean step by its profile, and as measured; None: it did none lately.

    `error` is one standard error of their ratio. `estimated`: its profile is none that was
    measured.
    """

    profile: str
    error: float | None
    estimated: bool
    tolerance: float = STEP_OFF

    @property
    def off_text(self) -> str:
        """`off` as text with twice its standard error."""
        if self.off is None or self.error is None:
            return ""
        return f"{self.off:+.0%} ± {_SURE * self.error:.0%}"

    @property
    def holds(self) -> bool | None:
        if self.off is None or self.error is None:
            return None
        return abs(self.off) <= max(STEP_OFF, _SURE * self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An assumption of the plan that no longer holds, and the remedy. `node`: where it fails."""

    text: str
    advice: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Predicted against measured. `running`: requests at once on average while there was any,
    `predicted_running`: as many were simulated. None: none ran, nothing is predicted."""

    running: float | None
    figures: Sequence[Compared]
    nodes: Sequence[NodeSteps]
    links: Sequence[Compared]
    lengths: Sequence[Compared]
    predicted_running: float | None = None

    @property
    def broken(self) -> tuple[Broken, ...]:
        """Broken assumptions, most important first; the last if nothing explains a difference."""
        found = (*self._slow_nodes(), *self._links(), *self._lengths(), *self._estimates())
        off = [_(each.name) for each in self.figures if each.holds is False]
        if found or not off:
            return found
        unexplained = Broken(
            text=_("What was measured of %(names)s is not what was predicted.")
            % {"names": ", ".join(off)},
            advice=_(
                "None of the assumptions that are measured explains it; the page of a slow request "
                "says where its time went."
            ),
        )
        return (unexplained,)

    def _slow_nodes(self) -> Iterator[Broken]:
        off = {node.name: node.off or 0.0 for node in self.nodes if node.holds is False}
        for name, share in sorted(off.items(), key=lambda item: -abs(item[1])):
            text, advice = (
                (
                    _("Steps of %(name)s take %(share)s longer than its profile says."),
                    _(
                        "Look for other work on that machine; else measure the node again, or use "
                        "the profile refined from its traffic, and compute again."
                    ),
                )
                if share > 0
                else (
                    _("Steps of %(name)s take %(share)s less than its profile says."),
                    _(
                        "Measure the node again, or use the profile refined from its traffic, and "
                        "compute again."
                    ),
                )
            )
            yield Broken(
                node=name,
                text=text % {"name": name, "share": f"{abs(share):.0%}"},
                advice=advice,
            )

    def _links(self) -> Iterator[Broken]:
        for link in self.links:
            if link.holds is False:
                yield Broken(
                    text=_("The link %(name)s does %(rate)s; the plan counts on %(counted)s.")
                    % {
                        "name": link.name,
                        "rate": bit_rate_text(link.measured or 0.0),
                        "counted": bit_rate_text(link.predicted or 0.0),
                    },
                    advice=_("Keep the measured rates on the network's page, and compute again."),
                )

    def _lengths(self) -> Iterator[Broken]:
        for mean in self.lengths:
            if mean.holds is False:
                text = (
                    _("Prompts have %(measured)s tokens on average; the plan is for %(planned)s.")
                    if mean.name == "prompt"
                    else _(
                        "Answers have %(measured)s tokens on average; the plan is for %(planned)s."
                    )
                )
                yield Broken(
                    text=text
                    % {"measured": f"{mean.measured:.0f}", "planned": f"{mean.predicted:.0f}"},
                    advice=_("Change the lengths on the cluster's page, and compute again."),
                )

    def _estimates(self) -> Iterator[Broken]:
        names = [node.name for node in self.nodes if node.estimated]
        if names:
            yield Broken(
                text=_("%(names)s were not measured: the plan uses estimates for them.")
                % {"names": ", ".join(names)},
                advice=_("Measure each on its page, and compute again."),
            )


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
