"""Our plans: read from files, or computed for decode throughput under each policy."""

from pathlib import Path

from planner.commands.files import read_plan, write_document
from planner.commands.options import POLICIES
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import plan_to_dict


def plans_of(
    problem: Problem, *, folder: Path | None, time_limit_s: float, seed: int
) -> dict[str, Plan]:
    """A plan for each policy; `folder` has them as PROBLEM.POLICY.json, or will have them."""
    plans = {}
    for name, policy in POLICIES.items():
        path = None if folder is None else folder / f"{problem.name}.{name}.json"
        if path is not None and path.exists():
            plans[name] = read_plan(path)
            continue
        plans[name] = compute_plan(
            problem,
            options=PlanOptions(
                objective="decode", policy=policy, time_limit_s=time_limit_s, seed=seed
            ),
            progress=lambda _: None,
            cancel=NeverCancelled(),
        )
        if path is not None:
            write_document(path, plan_to_dict(plans[name]))
    return plans
