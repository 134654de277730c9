"""Which rates of links count: those that plans were made with, or those measured. Pure."""

from collections.abc import Iterable, Mapping

from helixweb.deployment.live_links import LiveLink
from runtime.protocol.control import LinkStats

Ends = tuple[str, str]

# A rate that is off by less is no news: measurements spread, and weights shall not swing with them.
CHANGED = 0.2
# With so much less flow than planned, another placement may be worth its moved layers.
REPLAN_BELOW = 0.8
# What was confirmed longer ago says little of now; but a link that less is sent over since is not
# measured either, so what was found of it counts until it is worth another try.
STALE_AFTER_S = 60.0
FORGOTTEN_AFTER_S = 600.0


def counted_rate(planned_bytes_per_s: float, stats: LinkStats, *, known: float | None) -> float:
    """Bytes/s: the measured rate, where the link was seen full lately, or does more than planned;
    else what was planned with, or `known` before of a link that is hardly used since."""
    measured, age_s = stats.bandwidth_bytes_per_s, stats.bandwidth_age_s
    if not measured or age_s is None or age_s > FORGOTTEN_AFTER_S:
        return planned_bytes_per_s
    if age_s > STALE_AFTER_S:
        return planned_bytes_per_s if known is None else known
    if stats.bandwidth_is_floor:
        return max(planned_bytes_per_s, measured)
    return measured


def counted_rates(
    planned: Mapping[Ends, float], links: Iterable[LiveLink], *, known: Mapping[Ends, float]
) -> dict[Ends, float]:
    """Bytes/s of links that do something else than was planned with, beyond what is no news.

    One that is `known` to counts until it is back well within that, so that none comes and goes.
    """
    counted = {
        link.ends: counted_rate(planned[link.ends], link.stats_now, known=known.get(link.ends))
        for link in links
        if link.ends in planned
    }
    return {
        ends: rate
        for ends, rate in counted.items()
        if differs(rate, planned[ends], by=CHANGED / 2 if ends in known else CHANGED)
    }


def differs(rate: float, other: float, *, by: float = CHANGED) -> bool:
    """Whether one rate is news to who knows the other."""
    return abs(rate - other) > by * other


def is_news(counted: Mapping[Ends, float], known: Mapping[Ends, float]) -> bool:
    """Whether weights for the rates `known` (of links not named: as planned) are no longer right.

    A link that was known to differ and does as planned again is news, too.
    """
    if counted.keys() != known.keys():
        return True
    return any(differs(rate, known[ends]) for ends, rate in counted.items())
