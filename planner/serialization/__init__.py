"""Problem files (`helixweb.problem/1`, JSON or YAML) and plan files (`helixweb.plan/1`).

Everything is checked here, once, where it enters: an error names the path of the key, the value
and the remedy, and is always an InvalidProblem. Unknown keys are refused, since a misspelt
optional key would silently do nothing. Every package may import it.
"""

from planner.serialization.placements import PublishedPlacement, published_placements_from_text
from planner.serialization.plan_file import (
    PLAN_FORMAT,
    plan_from_dict,
    plan_from_text,
    plan_to_dict,
)
from planner.serialization.problem_file import (
    PROBLEM_FORMAT,
    problem_from_dict,
    problem_from_text,
    problem_to_dict,
    profile_from_dict,
    profile_to_dict,
)

__all__ = [
    "PLAN_FORMAT",
    "PROBLEM_FORMAT",
    "PublishedPlacement",
    "plan_from_dict",
    "plan_from_text",
    "plan_to_dict",
    "problem_from_dict",
    "problem_from_text",
    "problem_to_dict",
    "profile_from_dict",
    "profile_to_dict",
    "published_placements_from_text",
]
