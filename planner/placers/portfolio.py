"""The default search: every method in turn, each from the best so far, until nothing is to gain.

1. The stage-pattern program: a second at most, and often the best aligned stages there are. With a
   hop limit, which annealing rarely betters, again: from another start it prices other patterns.
2. The quick bounds; wherever a bound is reached, the search ends.
3. Where links are slow or share bandwidth: regions in levels (for what is shared), wide stages and
   chains of regions, then the bounds that charge the links.
4. Rounds of annealing, each twice as long as the one before: on stages where links are slow or the
   number of hops is limited, on staggered ranges where partial inference allows them.
5. On few nodes, the MILP, which can prove that no better placement exists.

Every step is limited in work (columns, branches, moves), so a seed gives the same incumbents in the
same order on any machine; the clock only ends that order. (The MILP's own phases are timed.)
"""

from collections.abc import Generator, Iterator
from functools import partial

from planner.bounds.best import quick_bounds_tokens_per_s, slow_link_bounds_tokens_per_s
from planner.placers.annealing import Effort
from planner.placers.base import StopReason
from planner.placers.board import Board, Method
from planner.placers.flow_tables import flow_tables
from planner.placers.interval_annealing import search_interval_annealing
from planner.placers.milp import search_milp
from planner.placers.region_chain import search_region_chains
from planner.placers.region_levels import search_region_levels
from planner.placers.stage_annealing import search_stage_annealing
from planner.placers.stage_patterns import search_stage_patterns
from planner.tuning.flow import PortfolioTuning as tuned


def search_by_all(board: Board, seed: int) -> StopReason:
    """Run every method in turn, each with its own seed, until the board is done."""
    return _search(board, _methods(board), seed)


def search_by_programs(board: Board, seed: int) -> StopReason:
    """As `search_by_all`, without chains of regions, bounds that charge links, and annealing."""
    return _search(board, _programs(board), seed)


def _search(board: Board, methods: Iterator[Method], seed: int) -> StopReason:
    own: StopReason = "heuristic"
    for number, method in enumerate(methods, start=1):
        if board.is_done():
            break
        own = method(board, seed * 101 + number)
    return own


def _programs(board: Board) -> Generator[Method, None, bool]:
    """The methods in turn, chosen as the search proceeds; between methods, bounds are proven.

    Returns whether links are slow.
    """
    rules = board.options.rules
    yield search_stage_patterns
    if rules.max_hops is not None:
        yield search_stage_patterns
    for bound in quick_bounds_tokens_per_s(board.problem, rules=rules):
        board.tighten(bound)
        if board.is_done():
            return False
    tables = flow_tables(board.problem, rules, bound_tokens_per_s=board.upper_bound_tokens_per_s)
    shares = bool(board.problem.cluster.shared)
    slow_links = bool(tables.names) and (shares or tables.links_may_bind())
    if shares and slow_links:
        yield search_region_levels
    return slow_links


def _methods(board: Board) -> Iterator[Method]:
    rules, partial_inference = board.options.rules, board.options.partial_inference
    slow_links = yield from _programs(board)
    if slow_links:
        yield search_region_chains
        if not board.is_done():
            _charge_links(board)
    few_nodes = len(board.problem.cluster.nodes) <= tuned.NODES_FOR_MILP
    for number in range(tuned.ROUNDS_BEFORE_MILP if few_nodes else tuned.ROUNDS):
        effort = Effort(
            moves_per_node=tuned.FIRST_MOVES_PER_NODE * 2**number,
            most_s_per_try=tuned.FIRST_S_PER_TRY * 2**number,
        )
        if slow_links or not partial_inference or rules.max_hops is not None:
            yield partial(search_stage_annealing, effort=effort)
        if partial_inference and rules.max_hops is None:
            yield partial(search_interval_annealing, effort=effort)
    if few_nodes:
        yield search_milp


def _charge_links(board: Board) -> None:
    for bound in slow_link_bounds_tokens_per_s(
        board.problem,
        rules=board.options.rules,
        known_bound_tokens_per_s=board.upper_bound_tokens_per_s,
        should_stop=board.is_done,
    ):
        board.tighten(bound)


# By the names in `base.PLACERS`.
METHODS: dict[str, Method] = {
    "auto": search_by_all,
    "milp": search_milp,
    "stage-patterns": search_stage_patterns,
    "region-chain": search_region_chains,
    "stage-annealing": search_stage_annealing,
    "interval-annealing": search_interval_annealing,
}
