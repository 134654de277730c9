"""Bandwidth of every directed pair as a heat map, slow links standing out."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from helixweb.charts.chart import Chart, figure_json, height_for_rows, plain, shortened
from helixweb.charts.quantities import bit_rate_text, duration_text
from planner.domain.cluster import Link


def network_matrix(names: Sequence[str], links: Mapping[tuple[str, str], Link]) -> Chart:
    """Rows send, columns receive. `links` has the effective link of each reachable pair."""
    rates = [link.bandwidth_bytes_per_s for link in links.values()]
    figure = figure_json([_heatmap(names, links, rates)], _layout(names))
    pairs = len(names) * (len(names) - 1)
    summary = (
        f"{len(links)} of {pairs} directed pairs are connected, {_range(min(rates), max(rates))}."
        if rates
        else "No two nodes are connected yet."
    )
    return Chart(
        figure=figure,
        summary=summary,
        columns=("From", "Links out", "Slowest", "Median", "Fastest", "Largest latency"),
        rows=tuple(_row(name, [link for (source, _), link in links.items() if source == name])
                   for name in names),
    )  # fmt: skip


def _heatmap(
    names: Sequence[str], links: Mapping[tuple[str, str], Link], rates: Sequence[float]
) -> go.Heatmap:
    low, high = (math.log10(min(rates)), math.log10(max(rates))) if rates else (0.0, 1.0)
    ticks = sorted({low, (low + high) / 2, high})
    return go.Heatmap(
        x=list(names),
        y=list(names),
        z=[[_log_rate(links.get((source, target))) for target in names] for source in names],
        text=[[_hover(source, target, links) for target in names] for source in names],
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        colorscale="Cividis",
        zmin=low if low < high else low - 1,
        zmax=high,
        xgap=1,
        ygap=1,
        colorbar={
            "title": {"text": "bandwidth"},
            "tickvals": ticks,
            "ticktext": [bit_rate_text(10**tick) for tick in ticks],
            "thickness": 12,
        },
    )


def _layout(names: Sequence[str]) -> dict[str, object]:
    axis = {
        "type": "category",
        "tickmode": "array",
        "tickvals": list(names),
        "ticktext": [shortened(name) for name in names],
        "showgrid": False,
        "zeroline": False,
    }
    return {
        "height": height_for_rows(len(names), minimum_px=260),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": {**axis, "title": {"text": "to", "standoff": 8}, "automargin": True},
        "yaxis": {
            **axis,
            "title": {"text": "from", "standoff": 8},
            "automargin": True,
            "autorange": "reversed",
        },
    }


def _range(low: float, high: float) -> str:
    if low == high:
        return f"all at {bit_rate_text(low)}"
    return f"at {bit_rate_text(low)} to {bit_rate_text(high)}"


def _log_rate(link: Link | None) -> float | None:
    return math.log10(link.bandwidth_bytes_per_s) if link else None


def _hover(source: str, target: str, links: Mapping[tuple[str, str], Link]) -> str:
    link, ends = links.get((source, target)), f"{plain(source)} → {plain(target)}"
    if link is None:
        return f"{ends}: no link"
    rate, latency = bit_rate_text(link.bandwidth_bytes_per_s), duration_text(link.latency_s)
    return f"{ends}: {rate}, {latency}"


def _row(name: str, out: Sequence[Link]) -> tuple[str | int, ...]:
    if not out:
        return (name, 0, "—", "—", "—", "—")
    rates = [link.bandwidth_bytes_per_s for link in out]
    return (
        name,
        len(out),
        bit_rate_text(min(rates)),
        bit_rate_text(median(rates)),
        bit_rate_text(max(rates)),
        duration_text(max(link.latency_s for link in out)),
    )
