"""Lets routing weights follow what links do; no layer moves, and a user may stop it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from helixweb.access.scope import WHOLE_SITE
from helixweb.deployment.announcing import announce, wake_coordinators
from helixweb.deployment.links import (
    CHANGED,
    FORGOTTEN_AFTER_S,
    STALE_AFTER_S,
    Ends,
    LiveLink,
    differs,
    weights_of,
)
from helixweb.deployment.models import SERVING, Deployment, LinkWeights
from helixweb.planning.stored import stored_plan, stored_problem
from planner.reweigh import reweigh
from planner.units import mbit_per_s_from_bytes_per_s

# If the flow is lower than planned by this share, a new placement may be worth its moved layers.
REPLAN_BELOW = 0.8


def counted_rate(link: LiveLink, planned: float, *, known: float | None) -> float:
    """Bytes/s: the measured rate, where the link was seen full lately, or does more than planned;
    else what was planned with, or `known` before of a link that is hardly used since."""
    measured, age_s = link.stats.bandwidth_bytes_per_s, link.rate_age_s
    if not measured or age_s is None or age_s > FORGOTTEN_AFTER_S:
        return planned
    if age_s > STALE_AFTER_S:
        return planned if known is None else known
    return max(planned, measured) if link.stats.bandwidth_is_floor else measured


def counted_rates(links: Iterable[LiveLink], *, known: Mapping[Ends, float]) -> dict[Ends, float]:
    """Bytes/s of links whose rate differs from the planned one by more than `CHANGED`.

    Hysteresis: a link in `known` stays until it differs by less than half of that.
    """
    counted = {}
    for link in links:
        before, planned = known.get(link.ends), link.planned_bytes_per_s
        if planned is not None:
            rate = counted_rate(link, planned, known=before)
            if differs(rate, planned, by=CHANGED if before is None else CHANGED / 2):
                counted[link.ends] = rate
    return counted


def _news(deployment: Deployment, links: Iterable[LiveLink]) -> dict[Ends, float] | None:
    """Rates to compute new weights for; None if the current weights fit.

    A link that was known to differ and is back at its planned rate changes them, too.
    """
    row = weights_of(deployment)
    known = {} if row is None else _known_rates(row)
    counted = counted_rates(links, known=known)
    is_same = counted.keys() == known.keys() and not any(
        differs(rate, known[ends]) for ends, rate in counted.items()
    )
    return None if is_same else counted


def follow_links(of: Deployment, links: Sequence[LiveLink], *, now: datetime) -> None:
    """Compute weights again if one of its `live_links` does something else than the present weights
    assume. Emulated nodes report no links, so their weights stay."""
    links = [link for link in links if link.is_at_work and link.stats.bandwidth_bytes_per_s]
    if _news(of, links) is None:
        return
    with transaction.atomic():
        rows = Deployment.light(WHOLE_SITE).select_for_update(of=("self",), no_key=True)
        serving = rows.filter(status__in=SERVING, emulated=False)
        deployment = serving.filter(pk=of.pk, generation=of.generation).first()
        counted = None if deployment is None else _news(deployment, links)
        if deployment is not None and counted is not None:
            _write(deployment, counted, now=now)


def hold_weights(deployment: Deployment, *, held: bool, user: Any, now: datetime) -> None:
    """Route by the plan's weights even if links are slow, or follow links again."""
    with transaction.atomic():
        columns = {"held": held, "changed_at": now, "generation": deployment.generation}
        planned = {"flow_tokens_per_s": deployment.plan.flow_tokens_per_s}
        LinkWeights.unscoped.update_or_create(
            deployment=deployment, defaults=columns, create_defaults=columns | planned
        )
        said = (
            gettext_noop("%(user)s has requests routed by the plan's weights.")
            if held
            else gettext_noop("%(user)s has requests routed by what links do.")
        )
        announce(deployment, said, user=str(user))
        wake_coordinators(deployment.cluster_id)


def _known_rates(row: LinkWeights) -> dict[Ends, float]:
    """Bytes/s that the weights are for; links not named do as planned."""
    parted = ((name.partition("->"), rate) for name, rate in row.rates.items())
    return {(source, target): rate for (source, _arrow, target), rate in parted}


def _write(deployment: Deployment, counted: Mapping[Ends, float], *, now: datetime) -> None:
    plan = stored_plan(deployment.plan)
    found = reweigh(stored_problem(deployment.plan), plan, counted)
    if found.flow_tokens_per_s <= 0:
        return
    row, _is_new = LinkWeights.unscoped.update_or_create(
        deployment=deployment,
        defaults={
            "generation": deployment.generation,
            "rates": {f"{source}->{target}": rate for (source, target), rate in counted.items()},
            "routing_weights": {
                source: dict(targets) for source, targets in found.routing_weights.items()
            },
            "flow_tokens_per_s": found.flow_tokens_per_s,
            "changed_at": now,
        },
    )
    if not row.held:  # also where a user's wish is of a generation before
        _announce(deployment, counted, found.flow_tokens_per_s, plan.flow.value_tokens_per_s)
        wake_coordinators(deployment.cluster_id)


def _announce(
    deployment: Deployment, counted: Mapping[Ends, float], flow: float, planned: float
) -> None:
    named = [
        f"{source} → {target}: {mbit_per_s_from_bytes_per_s(rate):.3g} Mb/s"
        for (source, target), rate in sorted(counted.items())
    ]
    if not named:
        said = gettext_noop(
            "Links do what was planned with again; requests are routed by the plan's weights."
        )
    elif flow < REPLAN_BELOW * planned:
        said = gettext_noop(
            "Links that do other than planned: %(count)s (%(links)s). Requests are routed by that. "
            "The layers where they are now allow %(flow)s of %(planned)s tokens/s: another "
            "placement may do more."
        )
    else:
        said = gettext_noop(
            "Links that do other than planned: %(count)s (%(links)s). Requests are routed by that."
        )
    announce(
        deployment,
        said,
        count=len(named),
        links=", ".join(named[:3]) + (", …" if len(named) > 3 else ""),
        flow=f"{flow:.0f}",
        planned=f"{planned:.0f}",
    )
