"""One horizontal bar per link of the share of time that it transmits, the busiest on top."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.chart import Chart, figure_json, height_for_rows, plain, shortened, trace
from helixweb.charts.quantities import bit_rate_text
from helixweb.words import gettext as _

SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoad:
    """A directed link: its share of time transmitting, its rate, and the messages that wait."""

    source: str
    target: str
    busy: float
    bytes_per_s: float
    queued: float
    queued_peak: int


def link_bars(loads: Sequence[LinkLoad]) -> Chart:
    """The busiest SHOWN links as bars; all of them in the table."""
    ordered = sorted(loads, key=lambda load: (-load.busy, load.source, load.target))
    shown = ordered[:SHOWN]
    keys = [str(number) for number in range(len(shown))]
    traces = [
        trace(
            "bar",
            orientation="h",
            y=keys,
            x=[load.busy for load in shown],
            text=[f"{load.busy:.0%}" for load in shown],
            textposition="auto",
            cliponaxis=False,
            marker={"color": "var(--accent)"},
            customdata=[
                _("%(source)s → %(target)s: %(bytes_per_s)s, %(queued)s messages wait")
                % {
                    "source": plain(load.source),
                    "target": plain(load.target),
                    "bytes_per_s": bit_rate_text(load.bytes_per_s),
                    "queued": f"{load.queued:.1f}",
                }
                for load in shown
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]
    layout = {
        "height": height_for_rows(len(shown), minimum_px=160),
        "bargap": 0.25,
        "margin": {"l": 8, "r": 24, "t": 8, "b": 44},
        "xaxis": {
            "title": {"text": _("time transmitting")},
            "range": [0, 1.02],
            "tickformat": ".0%",
        },
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": list(reversed(keys)),
            "tickmode": "array",
            "tickvals": keys,
            "ticktext": [f"{shortened(load.source)} → {shortened(load.target)}" for load in shown],
            "showgrid": False,
        },
    }
    return Chart(
        figure=figure_json(traces, layout),
        summary=_summary(ordered),
        columns=(
            _("From"),
            _("To"),
            _("Transmitting"),
            _("Rate"),
            _("Messages waiting"),
            _("Most"),
        ),
        rows=tuple(
            (
                load.source,
                load.target,
                f"{load.busy:.1%}",
                bit_rate_text(load.bytes_per_s),
                f"{load.queued:.2f}",
                load.queued_peak,
            )
            for load in ordered
        ),
    )


def _summary(ordered: Sequence[LinkLoad]) -> str:
    if not ordered:
        return _("No link carried anything.")
    busiest = ordered[0]
    text = _("Busiest link: %(source)s → %(target)s, %(busy)s of the time") % {
        "source": busiest.source,
        "target": busiest.target,
        "busy": f"{busiest.busy:.0%}",
    }
    return (
        _("%(text)s; the %(shown)s busiest are shown.") % {"text": text, "shown": SHOWN}
        if len(ordered) > SHOWN
        else f"{text}."
    )
