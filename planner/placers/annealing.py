"""Base of the annealing methods: the search, the next target flow, the length of a try.

A try anneals towards one target flow. It depends only on the problem, the seed and the effort, not
on the clock: the same seed finds the same placements in the same order, and the clock only decides
where that order ends.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from planner.chance import Schedule
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import SearchOptions, StopReason
from planner.placers.board import Board
from planner.placers.flow_tables import FlowTables, flow_tables
from planner.placers.loops import AnnealedStages
from planner.placers.stop import Stop
from planner.tuning.flow import AnnealingTuning as tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort of a search.

    A try takes `moves_per_node` moves for every node, or as many as take `most_s_per_try` on a
    machine of ordinary speed if these are fewer; a search ends when a few in turn have failed.
    """

    moves_per_node: int
    most_s_per_try: float = math.inf


ALONE = Effort(moves_per_node=tuned.ALONE_MOVES_PER_NODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Aim at a flow, from the best placement so far; `number` counts the tries of a search.

    `beside_pins`: where nodes are pinned, place only the layers that no pin holds.
    """

    target_tokens_per_s: float
    max_stages: int
    number: int
    beside_pins: bool
    seed: int
    moves: int
    best: Placement | None


class Annealer(Protocol):
    """One method's way to anneal."""

    def moves_per_s(self, tables: FlowTables) -> float:
        """About what a machine of ordinary speed makes, by the size of the problem alone."""
        ...

    def attempt(
        self, tables: FlowTables, aim: Try, *, chunk_moves: int, stop: Stop
    ) -> Placement | None:
        """One try; the flow of what it finds need not be what the annealing believes."""
        ...


def search_by_annealing(
    board: Board, annealer: Annealer, *, seed: int, by: str, effort: Effort
) -> StopReason:
    """Try until nothing helps, the bound is reached, or the time is over; measure what is found."""
    options, bound = board.options, board.most_merit
    views = _views(board.problem, options, bound_tokens_per_s=bound) if bound > 0 else []
    if not views or not views[0].names:
        return "heuristic"
    tables = views[0]
    moves_per_s = annealer.moves_per_s(tables)
    moves = effort.moves_per_node * len(tables.names)
    if effort.most_s_per_try < math.inf:
        moves = min(moves, int(moves_per_s * effort.most_s_per_try))
    most_failures = len(tuned.SHARES) * len(views)
    for number, share in _shares(lambda: board.merit, most_failures=most_failures):
        if board.is_done():
            break
        placement = annealer.attempt(
            views[number // 2 % len(views)],
            Try(
                target_tokens_per_s=board.merit + share * (bound - board.merit),
                max_stages=options.rules.max_hops or len(tables.names),
                number=number,
                # Every view is tried twice with one answer before it is with the other.
                beside_pins=number // (2 * len(views)) % 2 == 1,
                seed=seed * 1009 + number,
                moves=max(1, moves),
                best=board.placement,
            ),
            chunk_moves=max(1, min(tuned.MOST_CHUNK_MOVES, int(moves_per_s * tuned.CHUNK_S))),
            stop=board.stop,
        )
        if placement is not None:
            board.offer_free(placement, by=by)
    return "heuristic"


def _views(
    problem: Problem, options: SearchOptions, *, bound_tokens_per_s: float
) -> list[FlowTables]:
    """The problem as loops see it: one view, or several where links share bandwidth."""
    return [
        flow_tables(
            problem,
            options.rules,
            bound_tokens_per_s=bound_tokens_per_s,
            links_sharing=links_sharing,
        )
        for links_sharing in (tuned.LINKS_SHARING if problem.cluster.shared else (1,))
    ]


def _shares(
    reached_tokens_per_s: Callable[[], float], *, most_failures: int
) -> Iterator[tuple[int, float]]:
    """Numbered tries and where to aim between reached and bound; ends when all failed in turn."""
    failed = 0
    for number in itertools.count():
        if failed == most_failures:
            return
        before = reached_tokens_per_s()
        yield number, tuned.SHARES[failed % len(tuned.SHARES)]
        failed = 0 if reached_tokens_per_s() > before else failed + 1


def anneal_in_chunks(
    loop: Callable[[list[int], Schedule], AnnealedStages],
    *,
    start: list[int],
    schedule: Schedule,
    chunk_moves: int,
    stop: Stop,
) -> AnnealedStages:
    """Run a loop by chunks of its schedule, so that the clock and cancellation are checked."""
    annealed = best = loop(start, _chunk(schedule, done=0, chunk_moves=chunk_moves))
    for done in range(chunk_moves, schedule.moves, chunk_moves):
        if best.energy <= 0 or stop.is_over():
            break
        annealed = loop(annealed.last, _chunk(schedule, done=done, chunk_moves=chunk_moves))
        if annealed.energy < best.energy:
            best = annealed
    return best


def _chunk(schedule: Schedule, *, done: int, chunk_moves: int) -> Schedule:
    moves = min(chunk_moves, schedule.moves - done)

    def temperature(at: int) -> float:
        return schedule.hot * math.exp(
            math.log(schedule.cold / schedule.hot) * at / max(1, schedule.moves)
        )

    return Schedule(
        moves=moves,
        hot=temperature(done),
        cold=temperature(done + moves),
        seed=schedule.seed * 1_000_003 + done // chunk_moves,
    )
