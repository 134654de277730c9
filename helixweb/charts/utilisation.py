"""Flow against compute capacity of every node, and what limits a plan in words."""

from helixweb.charts.chart import (
    MOST_BARS,
    SHARES,
    Chart,
    plain,
    row_bars,
    rows_figure,
    those_drawn,
    tokens_per_s,
)
from helixweb.words import gettext as _
from planner.domain.cluster import SINK, SOURCE
from planner.domain.plan import Plan
from planner.domain.problem import Problem


def utilisation(problem: Problem, plan: Plan) -> Chart:
    """One bar per node, the busiest on top; nodes of the min cut are red and say so.

    Of more than `MOST_BARS` nodes only the busiest.
    """
    nodes = plan.flow.nodes
    ordered = sorted(nodes.items(), key=lambda item: (-item[1].utilisation, item[0]))[:MOST_BARS]
    cut = set(plan.flow.min_cut.nodes)
    names = [name for name, _ in ordered]
    bars = row_bars(
        names,
        [node.utilisation for _, node in ordered],
        [
            f"{plain(name)}: "
            + _("%(flow)s of %(capacity)s tokens/s")
            % {
                "flow": tokens_per_s(node.flow_tokens_per_s),
                "capacity": tokens_per_s(node.capacity_tokens_per_s),
            }
            for name, node in ordered
        ],
        text=[
            f"{node.utilisation:.0%}" + (_(" · min cut") if name in cut else "")
            for name, node in ordered
        ],
        marker={"color": ["var(--bad)" if name in cut else "var(--accent)" for name in names]},
    )
    full = sum(1 for node in nodes.values() if node.utilisation > 0.999)
    return Chart(
        figure=rows_figure([bars], names, x=_("flow ÷ capacity"), xaxis=SHARES),
        summary=_("%(full)s of %(count)s nodes are used to capacity.")
        % {"full": full, "count": len(nodes)}
        + those_drawn("busiest", len(nodes)),
        columns=(
            _("Node"), "GPU", _("Flow (tokens/s)"), _("Capacity (tokens/s)"), _("Utilisation"),
            _("Limits"),
        ),
        rows=tuple(
            (
                name,
                problem.profile_of(name).gpu,
                tokens_per_s(node.flow_tokens_per_s),
                tokens_per_s(node.capacity_tokens_per_s),
                f"{node.utilisation:.1%}",
                _("min cut") if name in cut else "",
            )
            for name, node in ordered
        ),
    )  # fmt: skip


def bottlenecks(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """A sentence for every member of the min cut, the one with most capacity first."""
    cut = plan.flow.min_cut
    limits = [
        (
            plan.flow.nodes[name].capacity_tokens_per_s,
            _("%(name)s (%(gpu)s): compute limits, %(capacity)s tokens/s with layers %(layers)s.")
            % {
                "name": name,
                "gpu": problem.profile_of(name).gpu,
                "capacity": tokens_per_s(plan.flow.nodes[name].capacity_tokens_per_s),
                "layers": plan.placement.layers[name],
            },
        )
        for name in cut.nodes
    ]
    capacity_of = {
        (edge.source, edge.target): edge.capacity_tokens_per_s for edge in plan.flow.edges
    }
    limits += [
        (
            capacity_of[source, target],
            _("%(source)s → %(target)s: the link limits, %(capacity)s tokens/s.")
            % {
                "source": _end(source),
                "target": _end(target),
                "capacity": tokens_per_s(capacity_of[source, target]),
            },
        )
        for source, target in cut.edges
    ]
    return tuple(text for _, text in sorted(limits, key=lambda limit: (-limit[0], limit[1])))


def _end(name: str) -> str:
    return _("coordinator") if name in (SOURCE, SINK) else name
