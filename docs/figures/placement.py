"""A placement: which layers each node holds, and what passes, as `planner draw` shows it."""

from docs.figures.example import PLACEMENT, flow, problem
from planner.commands.draw import picture


def draw() -> str:
    return picture(problem(), PLACEMENT, flow(partial_inference=True)).svg()
