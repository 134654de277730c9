"""Runs, incumbents and plans for pages and the API: charts, tables and sentences."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from helixweb.charts.bars import bottlenecks, utilisation
from helixweb.charts.chart import Chart
from helixweb.charts.curves import CurveGoal, incumbent_curve, moved_bytes
from helixweb.charts.flow_diagrams import flow_diagram
from helixweb.charts.layer_map import layer_map
from helixweb.planning.incumbents import placement_of
from helixweb.planning.models import Explanation, Incumbent, Plan, PlanRun, value_of_point
from helixweb.planning.objectives import AXIS_UNITS, objective_figure
from helixweb.planning.options import options_from_json
from helixweb.planning.stored import kept, stored_problem
from planner import FlowGraphs, LayerRange, NodeFlow, Placement, Problem, flow_through_nodes
from planner import Plan as DomainPlan
from planner.roofline import is_estimated

FIGURES = ("flow", "layers", "utilisation")
# A chart of more points shows nothing more.
MAX_BOUND_POINTS = 300
# The list shows so many incumbents; the chart shows all.
LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNode:
    """One line of the placement table; `before`: its layers in an earlier placement."""

    name: str
    gpu: str
    region: str
    layers: LayerRange
    before: LayerRange | None
    flow: NodeFlow
    limits: bool

    @property
    def has_moved(self) -> bool:
        return self.before != self.layers


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """A plan ready to be shown."""

    plan: DomainPlan
    flow: Chart
    layers: Chart
    utilisation: Chart
    bottlenecks: tuple[str, ...]
    nodes: tuple[PlacedNode, ...]
    idle_nodes: tuple[str, ...]
    estimated_nodes: tuple[str, ...]  # their profiles were not measured


def placed_nodes(
    problem: Problem,
    placement: Placement,
    flows: Mapping[str, NodeFlow],
    *,
    limiting: Collection[str],
    before: Mapping[str, LayerRange],
) -> tuple[PlacedNode, ...]:
    """The nodes of a placement in the order of their layers."""
    layers = placement.layers
    return tuple(
        PlacedNode(
            name=name,
            gpu=problem.profile_of(name).gpu,
            region=problem.cluster.node(name).region,
            layers=layers[name],
            before=before.get(name),
            flow=flows[name],
            limits=name in limiting,
        )
        for name in sorted(layers, key=lambda name: (layers[name].first, layers[name].end, name))
    )


@kept
def plan_context(problem: Problem, plan: DomainPlan) -> PlanContext:
    """Charts, table and sentences of a stored plan."""
    nodes = placed_nodes(
        problem, plan.placement, plan.flow.nodes, limiting=set(plan.flow.min_cut.nodes), before={}
    )
    return PlanContext(
        plan=plan,
        flow=flow_diagram(problem, plan),
        layers=layer_map(problem, plan.placement),
        utilisation=utilisation(problem, plan),
        bottlenecks=bottlenecks(problem, plan),
        nodes=nodes,
        idle_nodes=tuple(
            node.name for node in problem.cluster.nodes if node.name not in plan.placement.layers
        ),
        estimated_nodes=tuple(
            node.name for node in nodes if is_estimated(problem.profile_of(node.name))
        ),
    )


def incumbent_context(row: Incumbent) -> dict[str, Any]:
    """Context of an incumbent's page; `row` with its run. Computes the incumbent's flow.

    `moved`: number of nodes with other layers than in the previous incumbent; None: the first.
    """
    problem = stored_problem(row.run)
    placement = placement_of(row.placement, row.components)
    graphs = _flow_graphs(row.run_id, row.run.created_at)
    flow = flow_through_nodes(problem, graphs.graph_of(placement))
    others = Incumbent.unscoped.filter(run=row.run_id)
    earlier = others.filter(pk__lt=row.pk).order_by("-pk").first()
    before = placement_of(earlier.placement, earlier.components).layers if earlier else {}
    nodes = placed_nodes(problem, placement, flow.nodes, limiting=flow.in_cut, before=before)
    moved = sum(node.has_moved for node in nodes) + len(before.keys() - placement.layers.keys())
    return {
        "incumbent": row,
        "run": row.run,
        "layers": layer_map(problem, placement),
        "nodes": nodes,
        "flow_tokens_per_s": flow.value_tokens_per_s,
        "moved": moved if earlier else None,
        "figure": None if row.objective_value is None else row.figure,
        "earlier": earlier,
        "later": others.filter(pk__gt=row.pk).only("pk").order_by("pk").first(),
    }


# People look at one incumbent of a run after the other.
@lru_cache(maxsize=2)
def _flow_graphs(run_id: int, created_at: datetime) -> FlowGraphs:
    run = PlanRun.unscoped.get(pk=run_id, created_at=created_at)
    options = options_from_json(run.options)
    return FlowGraphs(
        stored_problem(run),
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
    )


def better_incumbents(run: PlanRun) -> Sequence[Incumbent]:
    """The placements that were better than all before, without mere bounds; the newest first."""
    rows = run.incumbents.defer("placement", "components").order_by("pk")
    found = [row for row, is_better in _with_better(rows) if is_better]
    return found[: -LISTED - 1 : -1]


def run_curve(run: PlanRun, *, now: datetime) -> Chart:
    """The incumbents of a run against time, up to its end or to `now`."""
    rows = _thinned(list(run.incumbents.defer("placement").order_by("pk")))
    values = [objective_figure(run.goal, row.objective_value).plotted for row in rows]
    goal = CurveGoal(
        name=run.figure.label,
        unit=AXIS_UNITS[run.goal],
        values=values,
        bounds=[row.objective_bound for row in rows],
        known="exact" if run.goal == "survival" else "estimated",
    )
    return incumbent_curve(
        rows, until_s=run.age_s(now=now), goal=None if run.goal == "flow" else goal
    )


def points_of(run: PlanRun) -> list[dict[str, Any]]:
    """A replanning's answers with their value in words; those from before were by flow."""
    return [
        point | {"figure": objective_figure(goal, value_of_point(point))}
        for point in run.replan.points
        for goal in ["flow" if point.get("objective_value") is None else run.goal]
    ]


def answers_of(run: PlanRun, plan: Plan | None) -> Chart:
    """A replanning's answers, their value against bytes moved."""
    figure = run.figure
    return moved_bytes(
        points_of(run),
        chosen=plan.document["placement"] if plan else None,
        title=f"{figure.label} ({figure.unit})",
    )


def explanation_of(plan: Plan) -> Explanation | None:
    """The plan's explanation if one was requested; None for older plans, whose page offers it."""
    return Explanation.unscoped.filter(plan=plan).first()


def num_node_kinds(plan: Plan) -> int:
    """Number of node kinds of which one more is tried; the search for each takes time."""
    nodes = stored_problem(plan).cluster.nodes
    return len({(node.compute_profile, node.region) for node in nodes})


def _with_better(rows: Iterable[Incumbent]) -> Iterator[tuple[Incumbent, bool]]:
    """Each with whether it is better than all before, not only its bound."""
    best = float("-inf")
    for row in rows:
        yield row, row.value > best
        best = max(best, row.value)


def _thinned(rows: Sequence[Incumbent]) -> list[Incumbent]:
    """Every better placement; of better bounds between them only some, and the last."""
    every = 1 + len(rows) // MAX_BOUND_POINTS
    return [
        row
        for index, (row, is_better) in enumerate(_with_better(rows))
        if is_better or index % every == 0 or index == len(rows) - 1
    ]
