"""What the pages and the API show of runs and plans: rows into charts, tables and sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from helixweb.charts.chart import Chart
from helixweb.charts.flow_diagram import flow_diagram
from helixweb.charts.incumbent_curve import CurveGoal, CurvePoint, incumbent_curve
from helixweb.charts.layer_map import layer_map
from helixweb.charts.moved_bytes import moved_bytes
from helixweb.charts.utilisation import bottlenecks, utilisation
from helixweb.planning.models import Explanation, Incumbent, Plan, PlanRun, Replan
from helixweb.planning.objectives import AXIS_UNITS, LABELS, objective_figure
from helixweb.planning.stored import kept, stored_problem
from planner.domain.flow import NodeFlow
from planner.domain.placement import LayerRange
from planner.domain.plan import Plan as DomainPlan
from planner.domain.problem import Problem
from planner.roofline import is_estimated

FIGURES: dict[str, Callable[["PlanView"], Chart]] = {
    "flow": lambda view: view.flow,
    "layers": lambda view: view.layers,
    "utilisation": lambda view: view.utilisation,
}
# A chart of more points shows nothing more.
MAX_BOUND_POINTS = 300


def figure_of(row: Plan, name: str) -> Chart:
    """One of FIGURES for a stored plan; raises KeyError for another name."""
    return FIGURES[name](plan_view(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNode:
    """One line of the placement table."""

    name: str
    gpu: str
    region: str
    layers: LayerRange
    flow: NodeFlow
    limits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan ready to be shown."""

    plan: DomainPlan
    flow: Chart
    layers: Chart
    utilisation: Chart
    bottlenecks: tuple[str, ...]
    nodes: tuple[PlacedNode, ...]
    idle_nodes: tuple[str, ...]
    estimated_nodes: tuple[str, ...]  # nobody has measured their profiles


@kept
def plan_view(problem: Problem, plan: DomainPlan) -> PlanView:
    """Charts, table and sentences of a stored plan."""
    limiting = set(plan.flow.min_cut.nodes)
    placed = sorted(
        plan.placement.layers.items(), key=lambda item: (item[1].first, item[1].end, item[0])
    )
    return PlanView(
        plan=plan,
        flow=flow_diagram(problem, plan),
        layers=layer_map(problem, plan.placement),
        utilisation=utilisation(problem, plan),
        bottlenecks=bottlenecks(problem, plan),
        nodes=tuple(
            PlacedNode(
                name=name,
                gpu=problem.profile_of(name).gpu,
                region=problem.cluster.node(name).region,
                layers=layers,
                flow=plan.flow.nodes[name],
                limits=name in limiting,
            )
            for name, layers in placed
        ),
        idle_nodes=tuple(
            node.name for node in problem.cluster.nodes if node.name not in plan.placement.layers
        ),
        estimated_nodes=tuple(
            name for name, _layers in placed if is_estimated(problem.profile_of(name))
        ),
    )


def run_curve(run: PlanRun, *, now: datetime) -> Chart:
    """The incumbents of a run against time, up to its end or to `now`."""
    return incumbent_curve(
        [
            CurvePoint(
                id=str(row.pk),
                elapsed_s=row.elapsed_s,
                flow_tokens_per_s=row.flow_tokens_per_s,
                upper_bound_tokens_per_s=row.upper_bound_tokens_per_s,
                placer=row.placer,
                objective_value=objective_figure(run.goal, row.objective_value).plotted,
            )
            for row in _thinned(list(run.incumbents.defer("placement").order_by("pk")))
        ],
        until_s=age_s(run, now=now),
        goal=None
        if run.goal == "flow"
        else CurveGoal(
            name=LABELS[run.goal],
            unit=AXIS_UNITS[run.goal],
            known="exact" if run.goal == "survival" else "estimated",
        ),
    )


def answers_of(asked: Replan, plan: Plan | None) -> Chart:
    """A replanning's answers, flow against bytes moved."""
    return moved_bytes(asked.points, chosen=plan.document["placement"] if plan else None)


def explanation_of(plan: Plan) -> Explanation | None:
    """What explains the plan, if it was asked for; the page of an older plan offers to ask."""
    return Explanation.objects.filter(plan=plan).first()


def num_node_kinds(plan: Plan) -> int:
    """How many kinds of node one more can be of: a search for the worth of each takes its time."""
    nodes = stored_problem(plan).cluster.nodes
    return len({(node.compute_profile, node.region) for node in nodes})


def age_s(run: PlanRun, *, now: datetime) -> float:
    """Seconds from the run's first start to its end or to `now`; 0 before it starts."""
    return ((run.finished_at or now) - run.started_at).total_seconds() if run.started_at else 0.0


def _thinned(rows: Sequence[Incumbent]) -> list[Incumbent]:
    """Every better placement, but of the mere bounds between them only some, and the last."""
    every = 1 + len(rows) // MAX_BOUND_POINTS
    kept = []
    best = -1.0
    for index, row in enumerate(rows):
        value = row.flow_tokens_per_s if row.objective_value is None else row.objective_value
        is_better = value > best
        if is_better or index % every == 0 or index == len(rows) - 1:
            kept.append(row)
        best = max(best, value)
    return kept
