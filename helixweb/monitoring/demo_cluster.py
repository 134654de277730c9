"""A cluster of 24 mixed GPUs that exists on no floor: for simulated traffic only."""

from dataclasses import replace

from django.utils import timezone

from helixweb.inventory.models import Cluster
from helixweb.inventory.services import import_problem_document
from helixweb.planning.attempts import record_finished_run
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_to_json
from planner.compute_plan import PlanOptions, compute_plan
from planner.domain.problem import Problem
from planner.generate import generated_cluster
from planner.placers.base import NeverCancelled
from planner.serialization import problem_to_dict

NAME = "Demo: 24 mixed GPUs"
# The mix of the Helix paper's single cluster (§6.1).
GPUS = {"A100": 4, "L4": 8, "T4": 12}
SEARCH_S = 10.0


def demo_plan() -> Plan:
    """The newest plan of the demo cluster; makes cluster and plan where they are missing.

    Raises PlannerError.
    """
    known = Plan.objects.filter(cluster__name=NAME).select_related("cluster").first()
    return known or _planned()


def _planned() -> Plan:
    problem = _problem()
    cluster = Cluster.objects.filter(name=NAME).first()
    if cluster is None:
        cluster = import_problem_document(problem_to_dict(problem), user="The demo")
    options = PlanOptions(time_limit_s=SEARCH_S)
    found = compute_plan(problem, options=options, progress=lambda _: None, cancel=NeverCancelled())
    profile = cluster.profiles.select_related("model").first()
    if profile is None:
        raise Cluster.DoesNotExist(f"cluster {NAME!r} has lost its profiles; delete it")
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
    return Plan.objects.select_related("cluster").get(run=run)


def _problem() -> Problem:
    count = sum(GPUS.values())
    problem = generated_cluster(
        num_nodes=count,
        num_regions=1,
        seed=0,
        mix={name: number / count for name, number in GPUS.items()},
    )
    return replace(problem, name=NAME, source="the demo: made by rule, no machine")
