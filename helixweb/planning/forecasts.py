"""Context of pages on a plan's forecasts and simulations: numbers and charts."""

from typing import Any

from django.utils.translation import gettext as _

from helixweb.charts.bars import NodeShare, link_bars, node_bars
from helixweb.planning.expected import output_forecasts
from helixweb.planning.models import Plan
from helixweb.planning.objectives import ObjectiveFigure, objective_figure
from helixweb.planning.services.studies import forecast_from_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner import Forecast, PlanForecast, instance_nodes, timing_source


def forecast_context(plan: Plan, *, asked: int) -> dict[str, Any]:
    """Context of the card; details of the simulation with the id `asked`, else the newest."""
    forecast = stored_plan(plan).forecast
    rows: list[dict[str, Any]] = [
        {"simulation": row, "forecast": row.forecast and forecast_from_json(row.forecast)}
        for row in plan.simulations.select_related("created_by")
    ]
    done = [row for row in rows if row["forecast"] is not None]
    newest = done[-1] if done else None
    chosen = next((row for row in done if row["simulation"].pk == asked), newest)
    return {
        "headline": _headline(plan),
        "forecast": forecast,
        "forecast_figure": objective_words(forecast),
        "simulations": rows,
        "is_simulating": any(not row["simulation"].is_finished for row in rows),
        "simulated": _in_detail(plan, chosen) if chosen else None,
        "simulation_asked": bool(asked),
    }


def _headline(row: Plan) -> dict[str, Any] | None:
    """The best forecast of the output, and from which to which all go; None: there is none."""
    found = output_forecasts(row, stored_plan(row))
    if not found:
        return None
    rates = [one.decode_tokens_per_s for one in found]
    return {
        "output": found[0], "lowest": min(rates), "highest": max(rates), "forecasts": len(rates),
    }  # fmt: skip


def _in_detail(plan: Plan, row: dict[str, Any]) -> dict[str, Any]:
    """Context of one forecast. `timing` is "measured" or "derived". `as_stages`: nodes whose
    whole-model instances were simulated as stages of all layers. `link_queue_peak`: most messages
    that waited for one link."""
    forecast: Forecast = row["forecast"]
    nodes = sorted(forecast.nodes.items(), key=lambda item: (-item[1].utilisation, item[0]))
    busy, kv = _("%(utilisation)s, batch %(batch_decodes)s"), _("%(kv_mean)s, at most %(kv_peak)s")
    in_words = {
        name: {
            "utilisation": f"{node.utilisation:.0%}",
            "batch_decodes": f"{node.batch_decodes:.0f}",
            "kv_mean": f"{node.kv_mean:.0%}",
            "kv_peak": f"{node.kv_peak:.0%}",
        }
        for name, node in nodes
    }
    return {
        "row": row,
        "timing": timing_source(stored_problem(plan)),
        "as_stages": sorted(instance_nodes(stored_plan(plan).instances)),
        "link_queue_peak": max((link.queued_peak for link in forecast.links), default=0),
        "busy": node_bars(
            [NodeShare(name, node.utilisation, busy % in_words[name]) for name, node in nodes],
            what=_("time computing"),
        ),
        "kv": node_bars(
            [NodeShare(name, node.kv_mean, kv % in_words[name]) for name, node in nodes],
            what=_("KV cache in use"),
        ),
        "links": link_bars(forecast.links),
    }


def objective_words(forecast: PlanForecast | None) -> ObjectiveFigure | None:
    """The plan's objective with its forecast value; None for the flow."""
    return None if forecast is None else objective_figure(forecast.objective, forecast.value)
