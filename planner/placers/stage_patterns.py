"""The stage-pattern integer program: aligned stages, chosen as patterns, bisected on the flow.

Its size does not grow with the number of nodes, only with their kinds: milliseconds to a second
for clusters of any size. It needs no partial inference. It sees no links; what they take away shows
in the exact max flow that every placement is reported with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.bounds.node_kinds import NodeKind, node_kinds
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import SearchOptions, StopReason
from planner.placers.board import Board
from planner.placers.pattern_placing import search_by_patterns
from planner.placers.pattern_search import FoundStages
from planner.placers.patterns import PatternFamily, PatternPool, Rows
from planner.placers.stages import placement_of_stages

NAME = "stage-patterns"


def search_stage_patterns(board: Board, seed: int) -> StopReason:
    """Place aligned stages, every node of a stage holding the same layers."""
    return search_by_patterns(
        board, lambda: _programs(board.problem, board.options), seed=seed, by=NAME
    )


class AlignedStages:
    """The program: stages of any nodes whose lengths add up to `num_layers`.

    With `spares` 1 (not 0) each carries its flow without its fastest node too.
    """

    def __init__(
        self, problem: Problem, options: SearchOptions, *, num_layers: int, spares: int = 0
    ) -> None:
        self._kinds = free_kinds(problem, options)
        self.pool = stage_pool(self._kinds, max_stages=options.rules.max_hops, spares=spares)
        self.num_layers = num_layers

    def placements(self, found: FoundStages) -> Iterator[Placement]:
        yield placement_of_stages(self._kinds, found.stages)


def _programs(problem: Problem, options: SearchOptions) -> Iterator[AlignedStages]:
    """For the whole model; with pins, for the layers that no pin holds too."""
    num_layers = problem.model.num_layers
    yield AlignedStages(problem, options, num_layers=num_layers)
    open_layers = options.rules.open_layers(num_layers)
    if 0 < open_layers < num_layers:
        yield AlignedStages(problem, options, num_layers=open_layers)


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


def stage_pool(kinds: list[NodeKind], *, max_stages: int | None, spares: int = 0) -> PatternPool:
    """Patterns of all kinds; with `max_stages` one more row counts the stages."""
    rows = Rows()
    use: dict[int, float] = {}
    if max_stages is not None:
        rows = Rows(extra_limits=(float(max_stages),))
        use = {len(kinds): 1.0}
    family = PatternFamily(kinds=tuple(range(len(kinds))), spares=spares, use_of_rows=use)
    return PatternPool(kinds, [family], rows)
