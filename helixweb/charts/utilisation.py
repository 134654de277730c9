"""Flow against compute capacity of every node, and what limits a plan in words."""

from helixweb.charts.chart import (
    MOST_BARS,
    SHARES,
    Chart,
    of_capacity,
    percent,
    plain,
    row_bars,
    rows_figure,
    those_drawn,
    tokens_per_s,
)
from helixweb.words import gettext as _
from planner import SINK, SOURCE, Plan, Problem


def utilisation(problem: Problem, plan: Plan) -> Chart:
    """One bar per node, the busiest on top; nodes of the min cut are red and say so.

    Of more than `MOST_BARS` nodes only the busiest.
    """
    nodes = plan.flow.nodes
    names = sorted(nodes, key=lambda name: (-nodes[name].utilisation, name))[:MOST_BARS]
    cut = set(plan.flow.min_cut.nodes)
    shares = [nodes[name].utilisation for name in names]
    bars = row_bars(
        names,
        shares,
        [f"{plain(name)}: {of_capacity(nodes[name])}" for name in names],
        text=[
            f"{share:.0%}" + (_(" · min cut") if name in cut else "")
            for name, share in zip(names, shares, strict=True)
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
                tokens_per_s(nodes[name].flow_tokens_per_s),
                tokens_per_s(nodes[name].capacity_tokens_per_s),
                percent(nodes[name].utilisation),
                _("min cut") if name in cut else "",
            )
            for name in names
        ),
    )  # fmt: skip


def bottlenecks(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """A sentence for every member of the min cut, the one with most capacity first."""
    cut, flow = plan.flow.min_cut, plan.flow
    node = _("%(name)s (%(gpu)s): compute limits, %(capacity)s tokens/s with layers %(layers)s.")
    link = _("%(source)s → %(target)s: the link limits, %(capacity)s tokens/s.")
    limits = [
        (
            flow.nodes[name].capacity_tokens_per_s,
            node,
            {
                "name": name,
                "gpu": problem.profile_of(name).gpu,
                "layers": plan.placement.layers[name],
            },
        )
        for name in cut.nodes
    ]
    limits += [
        (
            edge.capacity_tokens_per_s,
            link,
            {"source": _end(edge.source), "target": _end(edge.target)},
        )
        for edge in flow.edges
        if (edge.source, edge.target) in cut.edges
    ]
    said = [
        (-capacity, text % {**names, "capacity": tokens_per_s(capacity)})
        for capacity, text, names in limits
    ]
    return tuple(text for _capacity, text in sorted(said))


def _end(name: str) -> str:
    return _("coordinator") if name in (SOURCE, SINK) else name
