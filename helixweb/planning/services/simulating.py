"""Asks the simulator what a plan delivers under another workload, policy or seed."""

from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from helixweb.common import jobs
from helixweb.planning.models import Plan, Simulation
from planner.workload.request import InvalidWorkload

MIN_SHARE, MAX_SHARE = 0.01, 2.0
MAX_BURST_SIZE = 1000


def start_simulation(
    plan: Plan,
    *,
    workload: str,
    share: float | None,
    burst_size: int | None,
    policy: str,
    seed: int,
    user: Any,
) -> Simulation:
    """Queue a simulation. Raises InvalidWorkload for what the workload lacks or cannot have."""
    is_online = workload != Simulation.Workload.BACKLOG
    if is_online and (share is None or not MIN_SHARE <= share <= MAX_SHARE):
        raise InvalidWorkload(
            _(
                "share is %(share)s; requests that arrive need one from %(min_share)s to "
                "%(max_share)s of the peak"
            )
            % {"share": share, "min_share": f"{MIN_SHARE:g}", "max_share": f"{MAX_SHARE:g}"}
        )
    if not is_online and share is not None:
        raise InvalidWorkload(
            _("share is %(share)s but requests always wait; leave it out") % {"share": share}
        )
    if (burst_size is not None) != (workload == Simulation.Workload.BURSTS):
        raise InvalidWorkload(
            _(
                "burst_size is %(burst_size)s but the workload is %(workload)s; it is "
                "for 'bursts', which need it"
            )
            % {"burst_size": burst_size, "workload": repr(str(workload))}
        )
    with transaction.atomic():
        asked = Simulation.objects.create(
            plan=plan,
            workload=workload,
            share=share,
            burst_size=burst_size,
            policy=policy,
            seed=seed,
            created_by=user,
        )
        jobs.wake(asked)
    return asked
