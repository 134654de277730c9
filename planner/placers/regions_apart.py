"""Every region serves alone: for links, or shared bandwidth, that let next to nothing through.

Each group of nodes that can hold the model gets the stages that the pattern program finds for it;
the others stay idle. Flow may still go from one group to another where their stages meet.
"""

from dataclasses import replace

from planner.bounds.link_groups import LinkTable, link_groups, names_by_group
from planner.capacity import layer_limits, most_held
from planner.domain.placement import LayerRange, Placement
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.stage_patterns import search_stage_patterns

NAME = "regions-apart"


def search_regions_apart(board: Board, seed: int) -> StopReason:
    """Place each group's nodes as if the others were not there, all groups' placements together.

    Finds nothing where no group, or only the whole cluster, can hold the model.
    """
    problem, num_layers = board.problem, board.problem.model.num_layers
    members = names_by_group(link_groups(problem, LinkTable(problem)))
    layers: dict[str, LayerRange] = {}
    for group in sorted(members) if len(members) > 1 else ():
        limits = [layer_limits(problem, name) for name in members[group]]
        if board.stop.is_over() or most_held(limits, num_layers=num_layers) < num_layers:
            continue
        rules = board.options.rules.about(members[group])
        options = replace(board.options, rules=rules)
        own = Board(problem.only(members[group]), options, stop=board.stop)
        search_stage_patterns(own, seed)
        if own.placement is not None:
            board.used(own.solver)
            layers |= own.placement.layers
    if layers:
        board.offer_free(Placement(layers=layers), by=NAME)
    return "heuristic"
