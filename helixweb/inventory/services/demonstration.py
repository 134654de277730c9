"""A fictitious cluster of 24 mixed GPUs, to try out planning and comparing."""

from dataclasses import replace

from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster
from planner import Problem, generated_cluster

DEMO_NAME = "Demo: 24 mixed GPUs"
# The mix of the Helix paper's single cluster (§6.1).
GPUS = {"A100": 4, "L4": 8, "T4": 12}


def demo_cluster() -> Cluster:
    """The one there is, else a new one. Raises Conflicting, NameTaken."""
    known = Cluster.unscoped.filter(name=DEMO_NAME).first()
    return known or import_problem(demo_problem())


def demo_problem() -> Problem:
    """Made by rule, the same every time."""
    count = sum(GPUS.values())
    problem = generated_cluster(
        num_nodes=count,
        num_regions=1,
        seed=0,
        mix={name: number / count for name, number in GPUS.items()},
    )
    return replace(problem, name=DEMO_NAME, source="the demo: made by rule, no machine")
