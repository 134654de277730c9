"""A running placement and a changed problem -> answers, from no bytes moved to the best flow.

The use case is `compute_replan.py`; shell commands, explanations and the web import from here.
"""

from planner.replanning.answers import Replan, ReplanPoint, ReplanProgress
from planner.replanning.compute_replan import replan, unmoved_score, zero_moves
from planner.replanning.options import ReplanOptions

__all__ = [
    "Replan",
    "ReplanOptions",
    "ReplanPoint",
    "ReplanProgress",
    "replan",
    "unmoved_score",
    "zero_moves",
]
