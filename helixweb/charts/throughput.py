"""Token throughput and requests in the system over time."""

from collections.abc import Sequence
from datetime import datetime

from helixweb.charts.chart import Chart
from helixweb.charts.time_lines import Line, time_lines
from helixweb.words import gettext as _


def throughput(
    times: Sequence[datetime],
    *,
    output_tokens_per_s: Sequence[float | None],
    prompt_tokens_per_s: Sequence[float | None],
) -> Chart:
    """Trace 0 is output, trace 1 prompt."""
    return time_lines(
        times,
        [
            Line(name=_("output"), values=output_tokens_per_s, colour="var(--accent)"),
            Line(name=_("prompt"), values=prompt_tokens_per_s, colour="var(--warn)", dash="dash"),
        ],
        unit=_("tokens/s"),
    )


def requests_in_system(
    times: Sequence[datetime],
    *,
    running: Sequence[float | None],
    waiting: Sequence[float | None],
) -> Chart:
    """Trace 0 is running, trace 1 waiting."""
    return time_lines(
        times,
        [
            Line(name=_("running"), values=running, colour="var(--accent)"),
            Line(name=_("waiting"), values=waiting, colour="var(--warn)", dash="dash"),
        ],
        unit=_("requests"),
    )
