"""What the annealing placers share: the search, the flow to aim at next, how long a try may take.

A try anneals towards one target flow. What it does depends on nothing but the problem, the seed and
the effort, never on the clock: the same seed finds the same placements in the same order, and the
clock only says where that order ends.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from planner.bounds import upper_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult, StopReason
from planner.placers.best_so_far import BestSoFar
from planner.placers.compiled.tasks import Annealed, Schedule
from planner.placers.flow_tables import FlowTables, flow_tables

NO_SOLVER = "none"

# Where between the best flow and the bound a try aims, at last at anything better; a success begins
# anew.
_SHARES = (0.25, 0.5, 0.1, 0.75, 0.001)
# As how many links share a bandwidth, in turn: those of a narrow crossing, of a wide one, and of
# many crossings, each of which takes a little.
_LINKS_SHARING = (4, 64, 1, 256)
_CHUNK_S = 0.05  # between two looks at the clock, on a machine as fast as `moves_per_s` says
_MOST_CHUNK_MOVES = 4096

Energy = TypeVar("Energy", int, float)
State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealingOptions:
    """How hard to try, and when it is enough.

    A try takes `moves_per_node` moves for every node, or as many as take `most_s_per_try` on a
    machine of ordinary speed if these are fewer; a search ends when a few in turn have failed. It
    also ends within `relative_gap` of the bound: `planner.bounds`' quick one, or a tighter
    `known_upper_bound_tokens_per_s`.
    """

    moves_per_node: int = 4000
    most_s_per_try: float = math.inf
    known_upper_bound_tokens_per_s: float = math.inf
    relative_gap: float = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """Whether a search must stop, and its seconds until then."""

    ends_s: float
    is_cancelled: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic

    @property
    def seconds(self) -> float:
        return self.ends_s - self.clock()

    def is_over(self) -> bool:
        return self.is_cancelled() or self.seconds <= 0


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
    """One placer's way to anneal."""

    def moves_per_s(self, tables: FlowTables) -> float:
        """About what a machine of ordinary speed makes, by the size of the problem alone."""
        ...

    def attempt(
        self, tables: FlowTables, aim: Try, *, chunk_moves: int, time_left: TimeLeft
    ) -> Placement | None:
        """One try; the flow of what it finds need not be what the annealing believes."""
        ...


class AnnealingPlacer:
    """Places by tries of one annealer."""

    def __init__(
        self,
        annealer: Annealer,
        *,
        name: str,
        annealing: AnnealingOptions | None,
        clock: Callable[[], float],
    ) -> None:
        self._annealer = annealer
        self._name = name
        self._annealing = annealing or AnnealingOptions()
        self._clock = clock

    @property
    def name(self) -> str:
        return self._name

    def search(
        self,
        problem: Problem,
        *,
        options: SearchOptions,
        start: Placement | None,
        progress: Progress,
        cancel: CancelToken,
    ) -> SearchResult:
        """The best placement found; never worse than `start`.

        Tries until nothing helps, the bound is reached, or the time is over, and measures what is
        found.
        """
        started_s = self._clock()
        bound = min(
            self._annealing.known_upper_bound_tokens_per_s, upper_bound_tokens_per_s(problem)
        )
        best = BestSoFar(
            problem,
            options,
            placer=self._name,
            upper_bound_tokens_per_s=bound,
            progress=progress,
            elapsed_s=lambda: self._clock() - started_s,
        )
        if start is not None:
            best.start_from(start)
        time_left = TimeLeft(
            ends_s=started_s + options.time_limit_s,
            is_cancelled=cancel.is_cancelled,
            clock=self._clock,
        )
        sufficient = bound * (1 - self._annealing.relative_gap)
        views = _views(problem, options, bound_tokens_per_s=bound) if bound > 0 else []
        if views and views[0].names:
            tables = views[0]
            moves_per_s = self._annealer.moves_per_s(tables)
            moves = self._annealing.moves_per_node * len(tables.names)
            if self._annealing.most_s_per_try < math.inf:
                moves = min(moves, int(moves_per_s * self._annealing.most_s_per_try))
            most_failures = len(_SHARES) * len(views)
            for number, share in _shares(lambda: best.tokens_per_s, most_failures=most_failures):
                if best.tokens_per_s >= sufficient or time_left.is_over():
                    break
                aim = Try(
                    target_tokens_per_s=best.tokens_per_s + share * (bound - best.tokens_per_s),
                    max_stages=options.rules.max_hops or len(tables.names),
                    number=number,
                    # Every view is tried twice with one answer before it is with the other.
                    beside_pins=number // (2 * len(views)) % 2 == 1,
                    seed=options.seed * 1009 + number,
                    moves=max(1, moves),
                    best=best.placement,
                )
                placement = self._annealer.attempt(
                    views[number // 2 % len(views)],
                    aim,
                    chunk_moves=max(1, min(_MOST_CHUNK_MOVES, int(moves_per_s * _CHUNK_S))),
                    time_left=time_left,
                )
                if placement is not None:
                    best.offer(placement)
        reason: StopReason = "heuristic"
        if cancel.is_cancelled():
            reason = "cancelled"
        elif best.tokens_per_s >= sufficient:
            reason = "bound reached"
        elif time_left.is_over():
            reason = "time limit"
        return SearchResult(
            placement=best.placement,
            upper_bound_tokens_per_s=bound,
            stop_reason=reason,
            solver=NO_SOLVER,
        )


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
        for links_sharing in (_LINKS_SHARING if problem.cluster.shared else (1,))
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
        yield number, _SHARES[failed % len(_SHARES)]
        failed = 0 if reached_tokens_per_s() > before else failed + 1


def anneal_in_chunks(
    loop: Callable[[State, Schedule], Annealed[Energy, State]],
    *,
    start: State,
    schedule: Schedule,
    chunk_moves: int,
    time_left: TimeLeft,
) -> Annealed[Energy, State]:
    """Run a loop by chunks of its schedule, so that the clock and a cancel are heard."""
    annealed = best = loop(start, _chunk(schedule, done=0, chunk_moves=chunk_moves))
    for done in range(chunk_moves, schedule.moves, chunk_moves):
        if best.energy <= 0 or time_left.is_over():
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
