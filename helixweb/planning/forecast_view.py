"""Forecasts as the pages and the API show them: stored simulations into numbers and charts."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from helixweb.charts.chart import Chart
from helixweb.charts.share_bars import NodeShare, link_bars, node_bars
from helixweb.planning.expected import output_forecasts
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.objectives import ObjectiveFigure, objective_figure
from helixweb.planning.simulating import forecast_from_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner.domain.instance import instance_nodes
from planner.domain.plan import Plan as DomainPlan
from planner.domain.plan_forecast import PlanForecast
from planner.simulator.forecast import Forecast
from planner.timing import timing_source


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRow:
    """One line of the table of simulations; `forecast` is None while there is none."""

    simulation: Simulation
    forecast: Forecast | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationView:
    """A simulation in detail; `timing` is "measured" or "derived". `as_stages`: nodes whose
    whole-model instances were simulated as stages of all layers."""

    row: SimulationRow
    timing: str
    as_stages: tuple[str, ...]
    busy: Chart
    kv: Chart
    links: Chart

    @property
    def link_queue_peak(self) -> int:
        """Most messages that waited for one link."""
        forecast = self.row.forecast
        return max((link.queued_peak for link in forecast.links), default=0) if forecast else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """Output of a plan while requests always wait: decode tokens/s, and from which to which the
    `forecasts` of it go. Medians in seconds; None: not known."""

    decode_tokens_per_s: float
    lowest: float
    highest: float
    forecasts: int
    ttft_s: float | None
    tpot_s: float | None


def headline_of(row: Plan, simulations: Sequence[SimulationRow]) -> Headline | None:
    """None while the plan's output is not forecast."""
    plan = stored_plan(row)
    rates = output_forecasts(row, plan)
    if not rates:
        return None
    ttft_s, tpot_s = _latencies(plan, simulations)
    return Headline(
        decode_tokens_per_s=rates[0],
        lowest=min(rates),
        highest=max(rates),
        forecasts=len(rates),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
    )


def _latencies(
    plan: DomainPlan, simulations: Sequence[SimulationRow]
) -> tuple[float | None, float | None]:
    """By the same source as the rate."""
    if plan.instances:
        return None, None
    for row in reversed(simulations):
        asked = row.simulation
        is_of_runtime = asked.policy == Simulation.Policy.RUNTIME
        if row.forecast and is_of_runtime and asked.workload == Simulation.Workload.BACKLOG:
            return row.forecast.ttft.p50_s, row.forecast.tpot.p50_s
    if plan.forecast is None:
        return None, None
    simulated, estimated = plan.forecast.simulated, plan.forecast.estimated
    if simulated is not None and simulated.requests_per_s is None:
        return simulated.ttft.p50_s, simulated.tpot.p50_s
    return estimated.ttft_s, estimated.tpot_s


def simulation_rows(plan: Plan) -> list[SimulationRow]:
    """Every simulation of the plan, oldest first."""
    return [
        SimulationRow(
            simulation=row,
            forecast=None if row.forecast is None else forecast_from_json(row.forecast),
        )
        for row in plan.simulations.select_related("created_by")
    ]


def simulation_view(plan: Plan, row: SimulationRow) -> SimulationView | None:
    """None for a simulation that found nothing."""
    forecast = row.forecast
    if forecast is None:
        return None
    nodes = sorted(forecast.nodes.items(), key=lambda item: (-item[1].utilisation, item[0]))
    return SimulationView(
        row=row,
        timing=timing_source(stored_problem(plan)),
        as_stages=tuple(sorted(instance_nodes(stored_plan(plan).instances))),
        busy=node_bars(
            [
                NodeShare(
                    name,
                    node.utilisation,
                    _("%(utilisation)s, batch %(batch_decodes)s")
                    % {
                        "utilisation": f"{node.utilisation:.0%}",
                        "batch_decodes": f"{node.batch_decodes:.0f}",
                    },
                )
                for name, node in nodes
            ],
            what=_("time computing"),
        ),
        kv=node_bars(
            [
                NodeShare(
                    name,
                    node.kv_mean,
                    _("%(kv_mean)s, at most %(kv_peak)s")
                    % {"kv_mean": f"{node.kv_mean:.0%}", "kv_peak": f"{node.kv_peak:.0%}"},
                )
                for name, node in nodes
            ],
            what=_("KV cache in use"),
        ),
        links=link_bars(forecast.links),
    )


def objective_words(forecast: PlanForecast | None) -> ObjectiveFigure | None:
    """What the plan was searched for, and how much of it is forecast; None for the flow."""
    return None if forecast is None else objective_figure(forecast.objective, forecast.value)
