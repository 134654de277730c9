"""Placement of an LLM over mixed GPUs: the nouns and the mathematics, usable from a shell.

    from planner import PlanOptions, compute_plan, explain, read_problem, write_plan

    problem = read_problem(Path("cluster.json"))
    plan = compute_plan(problem, options=PlanOptions(time_limit_s=10))
    print(*explain(problem, plan), sep="\\n")
    write_plan(Path("plan.json"), plan)

No Django, no Celery, no plotly, no torch. Every package may import it; runtime takes only
`planner.domain`, `planner.routers` and `planner.latency_model`. A name below is loaded when it is
first used, so `import planner` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.commands.files import read_problem, write_plan
    from planner.domain.problem import Problem
    from planner.explanation import explain
    from planner.plan_options import PlanOptions
    from planner.planning import compute_plan
    from planner.replanning import ReplanOptions, replan
    from planner.simulator.simulate import simulate

__all__ = [
    "PlanOptions",
    "Problem",
    "ReplanOptions",
    "compute_plan",
    "explain",
    "read_problem",
    "replan",
    "simulate",
    "write_plan",
]

_MODULE_OF = {
    "PlanOptions": "planner.plan_options",
    "Problem": "planner.domain.problem",
    "ReplanOptions": "planner.replanning",
    "compute_plan": "planner.planning",
    "explain": "planner.explanation",
    "read_problem": "planner.commands.files",
    "replan": "planner.replanning",
    "simulate": "planner.simulator.simulate",
    "write_plan": "planner.commands.files",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
