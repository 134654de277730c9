"""Memory by component, one stacked bar per node or profile."""

from collections.abc import Mapping

from helixweb.charts.chart import PALETTE, Chart, Legend, plain, row_bars, rows_figure
from helixweb.charts.quantities import bytes_text
from helixweb.words import gettext as _
from helixweb.words import gettext_noop

UNITS = (("GB", 1e9), ("MB", 1e6))  # unit of the axis: that of the longest bar
# Okabe-Ito colours for used memory; free and unavailable memory is grey.
_COLOURS = {
    gettext_noop("weights"): PALETTE[0],
    gettext_noop("KV cache in use"): PALETTE[1],
    gettext_noop("KV cache kept for prompts"): PALETTE[6],
    gettext_noop("KV cache room"): PALETTE[1],
    gettext_noop("KV cache free"): "var(--flow)",
    gettext_noop("left for computing"): PALETTE[4],
    gettext_noop("not for the stage"): "var(--line)",
    gettext_noop("left"): "var(--line)",
}

Bars = Mapping[str, Mapping[str, float]]


def memory_bars(bars: Bars) -> Chart:
    """Bars of bytes by component for each name; components of 0 bytes are left out."""
    longest = max((sum(parts.values()) for parts in bars.values()), default=0.0)
    unit, unit_bytes = next(one for one in UNITS if longest >= one[1] or one is UNITS[-1])
    components = dict.fromkeys(part for parts in bars.values() for part in parts)
    shown = [part for part in components if max(one.get(part, 0.0) for one in bars.values()) > 0]
    names = list(bars)
    traces = [
        row_bars(
            names,
            [bars[name].get(part, 0.0) / unit_bytes for name in names],
            [f"{plain(name)}: {_(part)} {bytes_text(bars[name].get(part, 0.0))}" for name in names],
            name=_(part),
            marker={"color": _COLOURS[part], "line": {"width": 1, "color": "var(--surface)"}},
        )
        for part in shown
    ]
    return Chart(
        figure=rows_figure(
            traces,
            names,
            x=unit,
            xaxis={"rangemode": "tozero"},
            barmode="stack",
            uirevision="memory",
        ),
        summary=_summary(bars),
        columns=("", *(_(part)[0].upper() + _(part)[1:] for part in shown), _("Together")),
        rows=tuple(
            (
                name,
                *(bytes_text(parts.get(part, 0.0)) for part in shown),
                bytes_text(sum(parts.values())),
            )
            for name, parts in bars.items()
        ),
        # In HTML, which finds room on a phone.
        legend=tuple(Legend(colour=_COLOURS[part], label=_(part)) for part in shown),
    )


def _summary(bars: Bars) -> str:
    if not bars:
        return _("Nothing is known of any memory yet.")
    if len(bars) > 1:
        return _("Memory of %(count)s, by component.") % {"count": len(bars)}
    (parts,) = bars.values()
    shown = [f"{_(part)} {bytes_text(size)}" for part, size in parts.items() if size > 0]
    whole = bytes_text(sum(parts.values()))
    return _("Of %(whole)s: %(parts)s.") % {"whole": whole, "parts": ", ".join(shown)}
