"""Which layers every node of a placement holds, as horizontal bars over the model's layers."""

from collections import Counter

from helixweb.charts.chart import (
    MOST_ROWS,
    Chart,
    colours_by_name,
    plain,
    row_bars,
    rows_figure,
    whole_ticks,
)
from helixweb.words import gettext as _
from planner import LayerRange, Placement, Problem


def layer_map(problem: Problem, placement: Placement) -> Chart:
    """One row per node, sorted by layers, one colour per GPU.

    Of more than `MOST_ROWS` nodes, a row for those that hold the same layers on the same GPU.
    """
    ordered, gpu_of = _rows(problem, placement)
    colours = colours_by_name([profile.gpu for profile in problem.compute_profiles.values()])
    traces = []
    for gpu in sorted(set(gpu_of.values())):
        held_by = {name: held for name, held in ordered if gpu_of[name] == gpu}
        traces.append(
            row_bars(
                list(held_by),
                [len(held) for held in held_by.values()],
                list(map(plain, held_by)),
                name=plain(gpu),
                base=[held.first for held in held_by.values()],
                text=list(map(str, held_by.values())),
                textposition="inside",
                insidetextanchor="middle",
                textfont={"color": "#ffffff" if _is_dark(colours[gpu]) else "#101418"},
                marker={"color": colours[gpu]},
                hovertemplate="%{customdata}: %{text}<extra>" + plain(gpu) + "</extra>",
            )
        )
    axis = {
        "range": [0, problem.model.num_layers],
        "zeroline": False,
        **whole_ticks(problem.model.num_layers),
    }
    return Chart(
        figure=rows_figure(
            traces,
            [name for name, _ in ordered],
            x=_("layer"),
            has_legend=True,
            xaxis=axis,
            barmode="overlay",
        ),
        summary=_summary(problem, placement),
        columns=(_("Node"), "GPU", _("First layer"), _("End"), _("Layers")),
        rows=tuple((name, gpu_of[name], held.first, held.end, len(held)) for name, held in ordered),
    )


def _rows(
    problem: Problem, placement: Placement
) -> tuple[list[tuple[str, LayerRange]], dict[str, str]]:
    """Name and layers of each row, and the GPU by that name."""
    held = sorted(placement.layers.items(), key=lambda item: (item[1].first, item[1].end, item[0]))
    gpu_of = {name: problem.profile_of(name).gpu for name, _ in held}
    if len(held) <= MOST_ROWS:
        return held, gpu_of
    groups = Counter((layers, gpu_of[name]) for name, layers in held)
    most = {group for group, _ in groups.most_common(MOST_ROWS)}
    rows = {
        f"{count} x {gpu} {layers}": (layers, gpu)
        for (layers, gpu), count in groups.items()
        if (layers, gpu) in most
    }
    return (
        [(name, layers) for name, (layers, _) in rows.items()],
        {name: gpu for name, (_, gpu) in rows.items()},
    )


def _is_dark(colour: str) -> bool:
    """Whether white text reads better than black on `#rrggbb`, by relative luminance."""
    red, green, blue = (float(int(colour[start : start + 2], 16)) / 255 for start in (1, 3, 5))
    luminance: float = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return luminance < 0.25


def _summary(problem: Problem, placement: Placement) -> str:
    num_layers = problem.model.num_layers
    copies = [0] * num_layers
    for held in placement.layers.values():
        for layer in range(held.first, held.end):
            copies[layer] += 1
    return _(
        "%(holding)s of %(nodes)s nodes hold the %(num_layers)s layers; every "
        "layer is held %(least)s to %(most)s times."
    ) % {
        "holding": len(placement.layers),
        "nodes": len(problem.cluster.nodes),
        "num_layers": num_layers,
        "least": min(copies),
        "most": max(copies),
    } + (
        _(" A row stands for all nodes with the same layers and GPU.")
        if len(placement.layers) > MOST_ROWS
        else ""
    )
