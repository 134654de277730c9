"""An incumbent ready to be shown; its flow is worked out when somebody looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from helixweb.charts.chart import Chart
from helixweb.charts.layer_map import layer_map
from helixweb.planning.incumbents import placement_of
from helixweb.planning.models import Incumbent, PlanRun
from helixweb.planning.objectives import ObjectiveFigure, objective_figure
from helixweb.planning.options import options_from_json
from helixweb.planning.stored import run_problem
from planner.domain.flow import NodeFlow
from planner.domain.placement import LayerRange
from planner.flow_graph import FlowGraphs
from planner.max_flow import flow_through_nodes

# More of them nobody reads; the chart shows all.
LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLayers:
    """One node of the placement; `before`: what it held in the incumbent before, None: nothing."""

    name: str
    gpu: str
    layers: LayerRange
    before: LayerRange | None
    flow: NodeFlow
    limits: bool

    @property
    def has_moved(self) -> bool:
        return self.before != self.layers


@dataclass(frozen=True, slots=True, kw_only=True)
class IncumbentView:
    """`moved`: nodes whose layers differ from the incumbent before; None: it is the first."""

    layers: Chart
    nodes: tuple[HeldLayers, ...]
    flow_tokens_per_s: float
    moved: int | None
    figure: ObjectiveFigure | None


def incumbent_view(row: Incumbent) -> IncumbentView:
    """`row` with its run."""
    problem = run_problem(row.run)
    placement = placement_of(row.placement, row.components)
    graphs = _flow_graphs(row.run_id, row.run.created_at)
    flow = flow_through_nodes(problem, placement, graphs.graph_of(placement))
    earlier = Incumbent.objects.filter(run=row.run_id, pk__lt=row.pk).order_by("-pk").first()
    before = placement_of(earlier.placement, earlier.components).layers if earlier else {}
    placed = sorted(
        placement.layers.items(), key=lambda item: (item[1].first, item[1].end, item[0])
    )
    nodes = tuple(
        HeldLayers(
            name=name,
            gpu=problem.profile_of(name).gpu,
            layers=layers,
            before=before.get(name),
            flow=flow.nodes[name],
            limits=name in flow.in_cut,
        )
        for name, layers in placed
    )
    left_out = len(set(before) - set(placement.layers))
    return IncumbentView(
        layers=layer_map(problem, placement),
        nodes=nodes,
        flow_tokens_per_s=flow.value_tokens_per_s,
        moved=sum(node.has_moved for node in nodes) + left_out if earlier else None,
        figure=None
        if row.objective_value is None
        else objective_figure(row.run.goal, row.objective_value),
    )


# People look at one incumbent of a run after the other.
@lru_cache(maxsize=2)
def _flow_graphs(run_id: int, created_at: datetime) -> FlowGraphs:
    run = PlanRun.objects.defer("problem").get(pk=run_id, created_at=created_at)
    options = options_from_json(run.options)
    return FlowGraphs(
        run_problem(run),
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
    )


def better_incumbents(run: PlanRun) -> Sequence[Incumbent]:
    """The placements that were better than all before, without mere bounds; the newest first."""
    found: list[Incumbent] = []
    best = float("-inf")
    for row in run.incumbents.defer("placement", "components").order_by("pk"):
        value = row.flow_tokens_per_s if row.objective_value is None else row.objective_value
        if value > best:
            best = value
            found.append(row)
    return found[: -LISTED - 1 : -1]
