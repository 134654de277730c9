"""The placer of `docs/extend/placer.md`: equal stages, to which nodes are dealt in turn."""

from planner.capacity import fits, max_layers
from planner.domain.placement import Placement
from planner.placers.base import StopReason, equal_split
from planner.placers.board import Board


def search_even_stages(board: Board, seed: int) -> StopReason:
    """Offer a placement for each number of stages; nodes with most memory choose first."""
    problem = board.problem
    names = sorted(
        (node.name for node in problem.cluster.nodes),
        key=lambda name: -max_layers(problem, name),
    )
    for num_stages in range(1, len(names) + 1):
        if board.is_done():
            break
        stages = equal_split(problem.model.num_layers, num_stages)
        dealt = {name: stages[turn % num_stages] for turn, name in enumerate(names)}
        layers = {name: held for name, held in dealt.items() if fits(problem, name, held)}
        board.offer_free(Placement(layers=layers), by="even-stages")
    return "heuristic"
