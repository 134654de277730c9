"""What runs make large, in words: the label, the figure and the unit of each objective."""

from dataclasses import dataclass

from helixweb.charts.chart import UNKNOWN, tokens_per_s
from planner.domain.plan_forecast import Objective

LABELS: dict[Objective, str] = {
    "decode": "Decode throughput",
    "flow": "Max flow",
    "latency": "Throughput within the limits",
    "cost": "Tokens for the price",
    "fewest_nodes": "Nodes left idle",
}
CHOICES: dict[Objective, str] = {
    "decode": "Most decode throughput, as forecast",
    "flow": "Most flow, the Helix paper's objective",
    "latency": "Most decode throughput within latency limits",
    "cost": "Most tokens for the price of the nodes in use",
    "fewest_nodes": "Fewest nodes that meet a demand",
}
AXIS_UNITS: dict[Objective, str] = {
    "decode": "decode tokens/s",
    "flow": "tokens/s",
    "latency": "decode tokens/s",
    "cost": "million decode tokens per unit of price",
    "fewest_nodes": "share of the demand; from 2 on nodes left idle + 2",
}
# From this value on "fewest_nodes" counts the nodes it spares (planner.objectives.goal).
_NOTHING_SPARED = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveFigure:
    """A value of an objective as people read it; `label` says of what, `unit` in what."""

    label: str
    text: str
    unit: str

    def __str__(self) -> str:
        return f"{self.text} {self.unit}"


def objective_figure(objective: Objective, value: float | None) -> ObjectiveFigure:
    """`value` as in PlanForecast, or the flow for "flow"; None: nothing is known yet."""
    text, unit = UNKNOWN, AXIS_UNITS[objective]
    if objective == "fewest_nodes":
        unit = "the demand is met"
        if value is not None and value < 1:
            text, unit = f"{value:.0%}", "of the demand"
        elif value is not None:
            text = f"{value - _NOTHING_SPARED:.0f}"
    elif value is not None:
        text = f"{value:,.3g}" if objective == "cost" else tokens_per_s(value)
    return ObjectiveFigure(label=LABELS[objective], text=text, unit=unit)
