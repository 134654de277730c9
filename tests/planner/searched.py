"""One method's search of a problem, on a board of its own."""

import time
from dataclasses import dataclass

from planner.domain.placement import Placement
from planner.placers.base import NeverCancelled, SearchOptions
from planner.placers.board import Board
from planner.placers.stop import Stop


@dataclass(frozen=True)
class Found:
    placement: Placement | None
    upper_bound_tokens_per_s: float
    stop_reason: str
    solver: str


def searched(
    method,
    problem,
    *,
    start=None,
    seed=0,
    time_limit_s=60.0,
    progress=lambda incumbent: None,
    cancel=None,
    clock=time.monotonic,
    known_upper_bound_tokens_per_s=None,
    **options,
):
    """What `method` found from `start`, or the start itself, and why it ended."""
    is_searching = False
    board = Board(
        problem,
        SearchOptions(**options),
        stop=Stop(time_limit_s=time_limit_s, cancel=cancel or NeverCancelled(), clock=clock),
        flow_bound_tokens_per_s=known_upper_bound_tokens_per_s,
        progress=lambda incumbent: progress(incumbent) if is_searching else None,
    )
    if start is not None:
        board.offer(start, by="start")
    is_searching = True
    own = "heuristic" if board.is_done() else method(board, seed)
    return Found(
        placement=start if board.placement is None else board.placement,
        upper_bound_tokens_per_s=board.upper_bound_tokens_per_s,
        stop_reason=board.stop_reason(own),
        solver=board.solver,
    )
