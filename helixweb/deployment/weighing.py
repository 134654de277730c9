"""Let routing weights follow what links do; no layer moves, and a person may stop it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from helixweb.common.sentences import sentence
from helixweb.deployment.announcing import announce
from helixweb.deployment.link_rates import REPLAN_BELOW, Ends, counted_rates, is_news
from helixweb.deployment.live_links import LiveLink
from helixweb.deployment.models import SERVING, Deployment, LinkWeights
from helixweb.deployment.pushing import wake_coordinator
from helixweb.planning.stored import stored_plan, stored_problem
from planner.domain.cluster import COORDINATOR
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.reweigh import reweigh
from planner.units import mbit_per_s_from_bytes_per_s


def follow_links(of: Deployment, links: Sequence[LiveLink], *, now: datetime) -> bool:
    """Compute weights again if one of its `live_links` does something else than the present weights
    assume. Returns whether they changed.

    Emulated nodes report no links, so their weights stay.
    """
    links = [link for link in links if _says_something(link)]
    if not links and not LinkWeights.objects.filter(deployment=of).exists():
        return False
    with transaction.atomic():
        deployment = (
            Deployment.objects.select_for_update(of=("self",), no_key=True)
            .select_related("plan")
            .defer("plan__document", "plan__problem")
            .filter(pk=of.pk, generation=of.generation, status__in=SERVING, emulated=False)
            .first()
        )
        if deployment is None:
            return False
        row = LinkWeights.objects.filter(
            deployment=deployment, generation=deployment.generation
        ).first()
        if not links and row is None:
            return False
        problem = stored_problem(deployment.plan)
        known = known_rates(row)
        counted = counted_rates(planned_rates(problem, links), links, known=known)
        if not is_news(counted, known):
            return False
        return _write(deployment, problem, counted, now=now)


def hold_weights(deployment: Deployment, *, held: bool, user: Any, now: datetime) -> None:
    """Route by the plan's weights whatever links do, or follow them again."""
    with transaction.atomic():
        LinkWeights.objects.update_or_create(
            deployment=deployment,
            defaults={"held": held, "changed_at": now, "generation": deployment.generation},
            create_defaults={
                "held": held,
                "changed_at": now,
                "generation": deployment.generation,
                "flow_tokens_per_s": deployment.plan.flow_tokens_per_s,
            },
        )
        message = (
            gettext_noop("%(user)s has requests routed by the plan's weights.")
            if held
            else gettext_noop("%(user)s has requests routed by what links do.")
        )
        announce(deployment, said=sentence(message, user=str(user)))
        wake_coordinator(deployment.cluster_id)


def known_rates(row: LinkWeights | None) -> dict[Ends, float]:
    """Bytes/s that the weights are for; links not named do as planned."""
    if row is None:
        return {}
    return {
        (source, target): rate
        for name, rate in row.rates.items()
        for source, _, target in (name.partition("->"),)
    }


def planned_rates(problem: Problem, links: list[LiveLink]) -> dict[Ends, float]:
    """Bytes/s the plan was made with, of those links that it knows."""
    cluster = problem.cluster
    planned = {}
    for link in links:
        if all(name == COORDINATOR or cluster.has_node(name) for name in link.ends):
            known = cluster.link_between(*link.ends)
            if known is not None:
                planned[link.ends] = known.bandwidth_bytes_per_s
    return planned


def _says_something(link: LiveLink) -> bool:
    return link.is_at_work and link.stats.bandwidth_bytes_per_s is not None


def _write(
    deployment: Deployment,
    problem: Problem,
    counted: Mapping[Ends, float],
    *,
    now: datetime,
) -> bool:
    plan = stored_plan(deployment.plan)
    found = reweigh(problem, plan, counted)
    if found.flow_tokens_per_s <= 0:
        return False
    kept, _ = LinkWeights.objects.update_or_create(
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
    if not kept.held:  # also where a person's wish is of a generation before
        announce(deployment, said=_said(counted, found.flow_tokens_per_s, plan=plan))
        wake_coordinator(deployment.cluster_id)
    return True


def _said(counted: Mapping[Ends, float], flow_tokens_per_s: float, *, plan: Plan) -> dict[str, Any]:
    if not counted:
        return sentence(
            gettext_noop(
                "Links do what was planned with again; requests are routed by the plan's weights."
            )
        )
    named = [
        f"{source} → {target}: {mbit_per_s_from_bytes_per_s(rate):.3g} Mb/s"
        for (source, target), rate in sorted(counted.items())
    ]
    planned = plan.flow.value_tokens_per_s
    message = (
        gettext_noop(
            "Links that do other than planned: %(count)s (%(links)s). Requests are routed by that. "
            "The layers where they are now allow %(flow)s of %(planned)s tokens/s: another "
            "placement may do more."
        )
        if flow_tokens_per_s < REPLAN_BELOW * planned
        else gettext_noop(
            "Links that do other than planned: %(count)s (%(links)s). Requests are routed by that."
        )
    )
    return sentence(
        message,
        count=len(named),
        links=", ".join(named[:3]) + (", …" if len(named) > 3 else ""),
        flow=f"{flow_tokens_per_s:.0f}",
        planned=f"{planned:.0f}",
    )
