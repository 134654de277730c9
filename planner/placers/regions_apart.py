"""Every region serves alone: for links, or shared bandwidth, that let next to nothing through.

Each group of nodes that can hold the model gets the stages that the pattern program finds for it;
the others stay idle. Flow may still go from one group to another where their stages meet.
"""

from dataclasses import replace

from planner.bounds.link_groups import LinkTable, link_groups, names_by_group
from planner.capacity import ModelDoesNotFit, check_cluster_can_hold_model
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.stage_patterns import search_stage_patterns

NAME = "regions-apart"


def search_regions_apart(board: Board, seed: int) -> StopReason:
    """Place each group's nodes as if the others were not there, all groups' placements together.

    Finds nothing where no group, or only the whole cluster, can hold the model.
    """
    layers: dict[str, LayerRange] = {}
    for alone in _groups_that_hold_the_model(board.problem):
        if board.stop.is_over():
            break
        names = {node.name for node in alone.cluster.nodes}
        rules = board.options.rules
        pinned = {name: held for name, held in rules.pinned.items() if name in names}
        own = Board(
            alone,
            replace(board.options, rules=replace(rules, pinned=pinned)),
            stop=board.stop,
        )
        search_stage_patterns(own, seed)
        if own.placement is not None:
            layers |= own.placement.layers
    if layers:
        board.offer_free(Placement(layers=layers), by=NAME)
    return "heuristic"


def _groups_that_hold_the_model(problem: Problem) -> list[Problem]:
    """The problem of each group alone, where there is more than one."""
    members = names_by_group(link_groups(problem, LinkTable(problem)))
    everyone = {node.name for node in problem.cluster.nodes}
    holding = []
    for group in sorted(members) if len(members) > 1 else ():
        others = everyone - set(members[group])
        alone = replace(problem, cluster=problem.cluster.without(others))
        try:
            check_cluster_can_hold_model(alone)
        except ModelDoesNotFit:
            continue
        holding.append(alone)
    return holding
