"""The stage-pattern integer program: aligned stages, chosen as patterns, bisected on the flow.

Its size does not grow with the number of nodes, only with their kinds: milliseconds to a second
for clusters of any size. It needs no partial inference. It sees no links; what they take away shows
in the exact max flow that every placement is reported with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.bounds.node_kinds import NodeKind, node_kinds
from planner.domain.problem import Problem
from planner.placers.base import SearchOptions, StopReason
from planner.placers.board import Board
from planner.placers.pattern_search import PatternProgram, search_by_patterns
from planner.placers.patterns import PatternFamily, PatternPool

NAME = "stage-patterns"


def search_stage_patterns(board: Board, seed: int) -> StopReason:
    """Place aligned stages, every node of a stage holding the same layers."""
    return search_by_patterns(
        board, lambda: _programs(board.problem, board.options), seed=seed, by=NAME
    )


def aligned_stages(
    kinds: list[NodeKind], *, num_layers: int, max_stages: int | None = None, spares: int = 0
) -> PatternProgram:
    """The program of stages of any nodes whose lengths add up to `num_layers`.

    With `spares` 1 (not 0) each carries its flow without its fastest node too.
    """
    family = PatternFamily(kinds=tuple(range(len(kinds))), spares=spares)
    return PatternProgram(
        pool=PatternPool(kinds, [family], max_stages=max_stages), num_layers=num_layers
    )


def _programs(problem: Problem, options: SearchOptions) -> Iterator[PatternProgram]:
    """Programs for the whole model; with pins, also for the layers that no pin holds."""
    kinds, num_layers = free_kinds(problem, options), problem.model.num_layers
    open_layers = options.rules.open_layers(num_layers)
    for layers in (num_layers, open_layers) if 0 < open_layers < num_layers else (num_layers,):
        yield aligned_stages(kinds, num_layers=layers, max_stages=options.rules.max_hops)


def free_kinds(
    problem: Problem, options: SearchOptions, *, groups: Mapping[str, str] | None = None
) -> list[NodeKind]:
    """The kinds of the nodes that are not pinned."""
    kinds = node_kinds(problem, rules=options.rules, groups=groups)
    free = [
        replace(kind, names=tuple(n for n in kind.names if n not in options.rules.pinned))
        for kind in kinds
    ]
    return [kind for kind in free if kind.names]
