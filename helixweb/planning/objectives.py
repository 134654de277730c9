"""Objectives of runs in words: the label, the figure and the unit of each."""

from dataclasses import dataclass
from typing import Literal

from helixweb.charts.chart import UNKNOWN, tokens_per_s
from helixweb.words import gettext, gettext_noop
from planner import DEMAND_MET, Objective

# What a run makes large: an objective, or the flow that is left when the worst node is lost.
Goal = Objective | Literal["survival"]

LABELS: dict[Goal, str] = {
    "decode": gettext_noop("Decode throughput"),
    "flow": gettext_noop("Max flow"),
    "latency": gettext_noop("Throughput within the limits"),
    "cost": gettext_noop("Tokens for the price"),
    "fewest_nodes": gettext_noop("Nodes left idle"),
    "survival": gettext_noop("Flow left after the worst loss"),
}
AXIS_UNITS: dict[Goal, str] = {
    "decode": gettext_noop("decode tokens/s"),
    "flow": gettext_noop("tokens/s"),
    "latency": gettext_noop("decode tokens/s"),
    "cost": gettext_noop("million decode tokens per unit of price"),
    "fewest_nodes": gettext_noop("nodes left idle"),
    "survival": gettext_noop("tokens/s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveFigure:
    """A value of an objective as people read it; `label` says of what, `unit` in what.

    `plotted` is in the unit of AXIS_UNITS: no node is idle while the demand is not met.
    """

    label: str
    text: str
    unit: str
    plotted: float | None

    def __str__(self) -> str:
        return f"{self.text} {self.unit}"


def objective_figure(
    goal: Goal, value: float | None, *, is_after_loss: bool = False
) -> ObjectiveFigure:
    """`value` as in PlanForecast, or the flow it names; None: nothing is known yet.

    With `is_after_loss` it is what is left when the worst node is lost.
    """
    text, unit, plotted = UNKNOWN, AXIS_UNITS[goal], value
    if goal == "fewest_nodes":
        unit = gettext_noop("idle; the demand is met")
        if value is not None:
            plotted = max(0.0, value - DEMAND_MET)
            text = f"{plotted:.0f}"
        if value is not None and value < 1:
            text, unit = f"{value:.0%}", gettext_noop("of the demand is met; no node is idle")
    elif value is not None:
        text = f"{value:,.3g}" if goal == "cost" else tokens_per_s(value)
    label = gettext(LABELS[goal])
    if is_after_loss and goal != "survival":
        label = gettext("%(label)s after the worst loss") % {"label": label}
    return ObjectiveFigure(label=label, text=text, unit=gettext(unit), plotted=plotted)
