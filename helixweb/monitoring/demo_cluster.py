"""A cluster of 24 mixed GPUs that exists on no floor: for simulated traffic only."""

from django.utils import timezone

from helixweb.inventory.models import Cluster
from helixweb.inventory.services.demonstration import DEMO_NAME, demo_cluster, demo_problem
from helixweb.planning.incumbents import record_finished_run
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_to_json
from planner import NeverCancelled, PlanOptions, compute_plan
from planner.serialization import problem_to_dict

SEARCH_S = 10.0


def demo_plan() -> Plan:
    """The newest plan of the demo cluster; makes cluster and plan where they are missing.

    Raises PlannerError.
    """
    known = Plan.unscoped.filter(cluster__name=DEMO_NAME).select_related("cluster").first()
    return known or _planned()


def _planned() -> Plan:
    problem = demo_problem()
    cluster = demo_cluster()
    options = PlanOptions(time_limit_s=SEARCH_S)
    found = compute_plan(problem, options=options, progress=lambda _: None, cancel=NeverCancelled())
    profile = cluster.profiles.select_related("model").first()
    if profile is None:
        raise Cluster.DoesNotExist(f"cluster {DEMO_NAME!r} has lost its profiles; delete it")
    run = record_finished_run(
        PlanRun(
            cluster=cluster,
            model=profile.model,
            problem=problem_to_dict(problem),
            options=options_to_json(options),
        ),
        found,
        now=timezone.now(),
    )
    return Plan.unscoped.select_related("cluster").get(run=run)
