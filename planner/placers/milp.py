"""The MILP: Helix §4.4 searched with pruning, warm start, bound and early stop (§4.5).

It searches in phases, each from the best so far, as the paper's evaluation does with and without
partial inference and pruning (§6.1): first a few small models without partial inference and with
links pruned by chance, in which solvers find good placements soon, then the model as asked. What
needs no partial inference and few links may be used with both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.max_flow import max_flow
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.milp_model import build_placement_model
from planner.placers.milp_variables import Edge, PlacementModel
from planner.placers.pruning import node_links, prune_links
from planner.placers.solvers.base import SolveLimits, StopCause
from planner.placers.solvers.choice import solve
from planner.placers.stop import Stop
from planner.tuning.flow import MilpTuning as tuned

NAME = "milp"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """One model to solve, and until when."""

    partial_inference: bool
    prune_degree: float | None
    seed: int
    stop: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The connections a model allows; two phases may come to the same."""

    partial_inference: bool
    links: tuple[Edge, ...]


def search_milp(board: Board, seed: int) -> StopReason:
    """Search all placements; proves a bound when it may use all links.

    A bound over fewer links is no bound: with pruned links an exhausted search ends as "heuristic",
    and the bound is the known one. The rules that `restricted_problem` applies are not read here.
    """
    known_bound = board.upper_bound_tokens_per_s
    whole = _Scope(
        partial_inference=board.options.partial_inference, links=node_links(board.problem)
    )
    causes: dict[_Scope, StopCause] = {}
    cause: StopCause = "stopped"
    for phase in _phases(board, seed=seed):
        if causes.get(whole) == "optimal" or board.is_done():
            break
        start_flow = _flow_of_best(board, phase)
        scope = _scope(board, whole.links, phase=phase, start_flow=start_flow)
        if causes.get(scope) == "optimal":
            continue
        cause = causes[scope] = _solved(
            board,
            scope,
            phase=phase,
            start_flow=start_flow,
            known_bound=known_bound,
            proves_bounds=scope == whole,
        )
    sufficient = known_bound * (1 - board.options.relative_gap)
    if causes.get(whole) == "optimal" or (board.is_at_bound() and board.tokens_per_s < sufficient):
        return "optimal"
    return "time limit" if cause in ("time limit", "stopped") else "heuristic"


class _PhaseWatch:
    """Hears a solver for the board: the placements of its model, its bounds if they are proofs.

    Nothing that a solver says about flow is believed: the board measures each placement by max flow
    on all links, and only what that improves counts.
    """

    def __init__(
        self, board: Board, *, built: PlacementModel, proves_bounds: bool, stop: Stop
    ) -> None:
        self._board = board
        self._built = built
        self._proves_bounds = proves_bounds
        self._stop = stop
        self._last_measured: Placement | None = None

    def on_solution(self, values: Sequence[float]) -> None:
        placement = self._built.placement_of(values)
        if placement != self._last_measured:
            self._last_measured = placement
            self._board.offer(placement, by=NAME)

    def on_bound(self, upper_bound: float) -> None:
        proven = upper_bound * self._built.flow_unit_tokens_per_s
        known = self._board.upper_bound_tokens_per_s
        if self._proves_bounds and proven < known * (1 - tuned.BOUND_STEP_RELATIVE):
            self._board.tighten(proven)

    def should_stop(self) -> bool:
        return self._board.is_done() or self._stop.left_s <= 0


def _solved(
    board: Board,
    scope: _Scope,
    *,
    phase: _Phase,
    start_flow: Flow | None,
    known_bound: float,
    proves_bounds: bool,
) -> StopCause:
    built = build_placement_model(
        board.problem,
        node_links=scope.links,
        partial_inference=scope.partial_inference,
        upper_bound_tokens_per_s=known_bound,
        rules=board.options.rules,
    )
    start = None
    if board.placement is not None and start_flow is not None:
        start = built.values_of(board.placement, start_flow)
    solved = solve(
        board.options.solver,
        built.model,
        start=start,
        limits=SolveLimits(
            time_limit_s=phase.stop.left_s,
            relative_gap=board.options.relative_gap,
            seed=phase.seed,
        ),
        watcher=_PhaseWatch(board, built=built, proves_bounds=proves_bounds, stop=phase.stop),
    )
    board.used(solved.solver)
    return solved.cause


def _phases(board: Board, *, seed: int) -> Iterator[_Phase]:
    """A few small models in half of the time, then the one that was asked for."""
    prune_degree, left_s = board.options.prune_degree, board.stop.left_s
    for number in range(tuned.SMALL_PHASES):
        share = tuned.SMALL_PHASES_SHARE * (number + 1) / tuned.SMALL_PHASES
        yield _Phase(
            partial_inference=False,
            prune_degree=prune_degree or tuned.SMALL_PHASE_DEGREE,
            seed=seed + number,
            stop=board.stop.until(board.stop.time_limit_s - left_s * (1 - share)),
        )
    yield _Phase(
        partial_inference=board.options.partial_inference,
        prune_degree=prune_degree,
        seed=seed,
        stop=board.stop,
    )


def _flow_of_best(board: Board, phase: _Phase) -> Flow | None:
    if board.placement is None:
        return None
    return max_flow(
        board.problem,
        board.placement,
        partial_inference=phase.partial_inference,
        max_hops=board.options.rules.max_hops,
    )


def _scope(
    board: Board, links: tuple[Edge, ...], *, phase: _Phase, start_flow: Flow | None
) -> _Scope:
    """The phase's links; those that carry the start's flow are kept, or pruning would void it."""
    if phase.prune_degree is not None:
        used = {
            (edge.source, edge.target)
            for edge in (start_flow.edges if start_flow is not None else ())
            if edge.flow_tokens_per_s > 0
        }
        links = prune_links(
            board.problem, links, average_degree=phase.prune_degree, keep=used, seed=phase.seed
        )
    return _Scope(partial_inference=phase.partial_inference, links=links)
