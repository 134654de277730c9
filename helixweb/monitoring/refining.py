"""Profiles refined by what stages did under traffic, kept beside those that were measured."""

from collections.abc import Iterable
from datetime import datetime

from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Origin, Profile
from helixweb.inventory.services.profile_versions import keep_refined
from helixweb.monitoring.node_work import observed_steps
from helixweb.monitoring.predicting import serving
from helixweb.planning.stored import stored_plan, stored_problem
from planner import (
    Busy,
    InvalidProblem,
    Problem,
    Refinement,
    layer_times_of,
    refine,
    refined_profile,
)

# With less work of a kind of node its times are not refined.
LEAST_BUSY_S = 10.0
LEAST_OBSERVATIONS = 5
# Smaller changes are ignored.
CHANGED = 0.02


def refine_profiles(now: datetime) -> None:
    """Refine the profiles of the nodes of all serving deployments."""
    for deployment in serving():
        observed = observed_steps(deployment, now=now)
        problem = stored_problem(deployment.plan)
        by_profile: dict[str, list[str]] = {}
        for name in stored_plan(deployment.plan).placement.layers:
            by_profile.setdefault(problem.profile_of(name).name, []).append(name)
        for profile, names in by_profile.items():
            busy = [one.busy for name in names for one in observed.get(name, ())]
            _refine(deployment, problem, profile, names=names, busy=busy, now=now)


def _refine(
    deployment: Deployment,
    problem: Problem,
    profile: str,
    *,
    names: list[str],
    busy: Iterable[Busy],
    now: datetime,
) -> None:
    """Refine the profile that the plan was made with; the row may differ by now."""
    found = refine(list(busy))
    if found is None or found.busy_s < LEAST_BUSY_S or found.observations < LEAST_OBSERVATIONS:
        return
    row = Profile.unscoped.filter(
        cluster=deployment.cluster_id, model=deployment.model_id, name=profile
    ).first()
    if row is None or not _is_news(row, found):
        return
    try:
        times = layer_times_of(problem, names[0])
    except InvalidProblem:  # a profile that says nothing of speed has nothing to be refined
        return
    refined = refined_profile(
        problem.compute_profiles[profile],
        times,
        found,
        prompt_tokens=problem.workload.mean_prompt_tokens,
    )
    evidence = {
        "prompt": {"factor": found.prompt.factor, "error": found.prompt.error},
        "decode": {"factor": found.decode.factor, "error": found.decode.error},
        "observations": found.observations,
        "busy_s": found.busy_s,
        "nodes": names,
        "deployment": deployment.pk,
    }
    keep_refined(row, refined, evidence=evidence, now=now)


def _is_news(row: Profile, found: Refinement) -> bool:
    """Whether it differs from what was refined last."""
    newest = row.versions.order_by("-number").first()
    if newest is None or newest.origin != Origin.REFINED or not newest.evidence:
        return True
    return any(
        abs(newest.evidence[phase]["factor"] - factor.factor) > CHANGED
        for phase, factor in (("prompt", found.prompt), ("decode", found.decode))
    )
