"""The work of an explanation: what limits a plan, what survives a loss, what more would bring."""

from dataclasses import asdict
from typing import Any

from helixweb.common.jobs import Outcome
from helixweb.common.leases import Lease
from helixweb.planning.models import Explanation
from helixweb.planning.options import DEFAULTS, options_from_json
from planner.explain import MarginalValue, explain_min_cut, marginal_values
from planner.replan import zero_moves
from planner.robust import survival
from planner.serialization import plan_from_dict, problem_from_dict


def explain(row: Explanation, lease: Lease) -> Outcome:
    """Work out what explains the row's plan."""
    problem, plan = problem_from_dict(row.plan.problem), plan_from_dict(row.plan.document)
    options = options_from_json(row.plan.run.options) if row.plan.run else DEFAULTS
    options = options.for_running(plan)
    standing = zero_moves(problem, plan.placement, options=options)
    worst = survival(problem, plan.placement, options=options)
    values = marginal_values(
        problem, plan.placement, options=options, search_s=row.search_s, cancel=lease
    )
    return Outcome(
        columns={
            "limits": list(explain_min_cut(problem, standing.placement, standing.flow)),
            "survival_tokens_per_s": worst.flow_tokens_per_s,
            "worst_node": worst.worst_node,
            "values": [_value_to_json(value) for value in values],
        }
    )


def _value_to_json(value: MarginalValue) -> dict[str, Any]:
    return {**asdict(value), "gain": value.gain}
