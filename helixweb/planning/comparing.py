"""Several plans side by side: what they deliver, and which layers lie elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.planning.forecast_view import objective_words
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.objectives import ObjectiveFigure
from helixweb.planning.simulating import forecast_from_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner.domain.plan import Plan as DomainPlan
from planner.placers.budgeted_moves import moved_layers
from planner.simulator.forecast import Forecast

MOST_PLANS = 4
# Of so many nodes nobody looks for those that differ.
MANY_NODES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPlan:
    """One plan. `simulated` is its newest offline simulation under our runtime's policy.

    `moved_bytes` is what nodes load anew on the way from the first plan; None for the first, and
    where the models differ.
    """

    row: Plan
    plan: DomainPlan
    figure: ObjectiveFigure | None
    simulated: Forecast | None
    moved_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayers:
    """What one node holds in each plan, as text; `differs` from plan to plan."""

    node: str
    layers: tuple[str, ...]
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Plans in the order they were asked for, nodes by name."""

    plans: tuple[ComparedPlan, ...]
    nodes: tuple[NodeLayers, ...]

    @property
    def shown(self) -> tuple[NodeLayers, ...]:
        """All nodes; from `MANY_NODES` on those that differ."""
        if len(self.nodes) < MANY_NODES:
            return self.nodes
        return tuple(node for node in self.nodes if node.differs)

    @property
    def left_out(self) -> int:
        """Nodes that hold the same in every plan, where they are not shown."""
        return len(self.nodes) - len(self.shown)


def compare(rows: Sequence[Plan]) -> Comparison:
    """Everything beside the first of them."""
    plans = [stored_plan(row) for row in rows]
    names = sorted({name for plan in plans for name in plan.placement.layers})
    lines = []
    for name in names:
        held = [plan.placement.layers.get(name) for plan in plans]
        texts = tuple("" if layers is None else str(layers) for layers in held)
        lines.append(NodeLayers(node=name, layers=texts, differs=len(set(texts)) > 1))
    return Comparison(
        plans=tuple(
            ComparedPlan(
                row=row,
                plan=plan,
                figure=objective_words(plan.forecast),
                simulated=_simulated(row),
                moved_bytes=_moved_bytes(rows[0], plans[0], row, plan),
            )
            for row, plan in zip(rows, plans, strict=True)
        ),
        nodes=tuple(lines),
    )


def _simulated(row: Plan) -> Forecast | None:
    found = row.simulations.filter(
        workload=Simulation.Workload.BACKLOG,
        policy=Simulation.Policy.RUNTIME,
        forecast__isnull=False,
    ).last()
    return forecast_from_json(found.forecast) if found and found.forecast else None


def _moved_bytes(first_row: Plan, first: DomainPlan, row: Plan, plan: DomainPlan) -> float | None:
    if row.pk == first_row.pk or row.model_id != first_row.model_id:
        return None
    bytes_per_layer = stored_problem(row).model.bytes_per_layer
    return moved_layers(first.placement, plan.placement) * bytes_per_layer
