"""Tuning of searches for flow, and of bounds on it."""


class CrossingBoundTuning:
    """Of `planner/bounds/crossing.py`."""

    # Of the flow, rounded up; finer ones are priced more slowly in proportion.
    UNITS = 2000
    # Ends programs when their columns no longer gain; geo24 takes 0.15 CPU seconds in all.
    MAX_ROUNDS = 150
    MAX_PAIRS_PRICED = 8_000_000  # pairs of items in all rounds of one program; bounds its time
    # Steps grow from 0.2 % of the flow until one is possible, then bisect to 0.02 %.
    BISECTIONS = 13
    LEAST_STEP = 2e-4
    FIRST_STEP = 2e-3
    # Nodes of a stage, by classes; not measured apart.
    WIDTH_CLASSES = (1, 2, 3, 5, 9)


class LinkGroupsTuning:
    """Of `planner/bounds/link_groups.py`."""

    # Of bandwidth between links within groups and across; in the published regions it is 100.
    LEAST_JUMP = 4.0


class PatternBoundTuning:
    """Of `planner/bounds/pattern.py`."""

    # Rounding costs a slowest node at most 1/40 of its speed, all others less.
    UNITS_OF_SLOWEST = 40
    # At least so fine, and no finer: time grows with them.
    UNITS_MIN, UNITS_MAX = 4000, 20000
    UNITS_WITH_SPARES = 1500  # a cover with a spare costs one run for every item
    # Of column generation; ends programs that rounding keeps from their end.
    MAX_ITERATIONS = 400
    STEP = 2e-4  # relative; the program stops when it cannot lower the bound by that much


class AnnealingTuning:
    """Of `planner/placers/annealing.py`."""

    # Where between the best flow and the bound a try aims, at last at anything better; a success
    # begins again.
    SHARES = (0.25, 0.5, 0.1, 0.75, 0.001)
    # As how many links share a bandwidth, in turn: those of a narrow crossing, of a wide one, and
    # of many crossings, each of which takes a little.
    LINKS_SHARING = (4, 64, 1, 256)
    CHUNK_S = 0.05  # between two looks at the clock, on a machine as fast as `moves_per_s` says
    # However quick moves are said to be.
    MOST_CHUNK_MOVES = 4096
    # Where annealing is all that was asked for.
    ALONE_MOVES_PER_NODE = 20_000


class IntervalAnnealingTuning:
    """Of `planner/placers/interval_annealing.py`."""

    # In flows on one layer, by turns. Measured on 100 generated nodes in one region, of four seeds
    # each at 0.1 % and 10 % of the way to the bound: 0.2 succeeds 4 and 3 times, 0.1 1 and 2 times.
    HOTNESS = (0.2, 0.1, 0.35, 1.0)
    MOVES_PER_S = 12e6  # measured on one of two busy cores


class MilpTuning:
    """Of `planner/placers/milp.py`."""

    # On few links first: later phases begin at what these found; not measured apart.
    SMALL_PHASES = 3
    SMALL_PHASES_SHARE = 0.5
    # Measured on the published clusters: with 8 a 42-node model fits Gurobi's free licence; 5 and
    # 12 found less in the same time.
    SMALL_PHASE_DEGREE = 8.0
    # A bound is reported when it is tighter by this share.
    BOUND_STEP_RELATIVE = 1e-4


class PatternSearchTuning:
    """Of `planner/placers/pattern_search.py`."""

    # What may be left of the flow between two targets.
    RELATIVE_STEP = 5e-4
    # Doubled while nothing is found, up to the most.
    FIRST_STEP_DOWN = 0.0025
    MOST_STEP_DOWN = 0.3
    LEAST_SHARE = 1e-3  # of the highest flow in question; stages that carry less are not looked for
    # Of one search. The published clusters take less than 1000; of chains of regions, those that
    # find anything on 100 to 1000 generated nodes do so within 8000.
    MOST_PRICED = 8000
    # Of one integer program. Nodes, not seconds: the same stages are found on any machine.
    NODES = 1000


class PatternsTuning:
    """Of `planner/placers/patterns.py`."""

    # As PatternBound.UNITS_MIN.
    UNITS = 4000
    # Of column generation, which ends by itself sooner but for rounding.
    MAX_ROUNDS = 60
    # Below the bisection's step of pattern searches.
    CARRIED_RELATIVE_WIDTH = 1e-6
    PAYS_OFF = 1e-6  # layers; a pattern that adds less to the program is not worth a column


class PortfolioTuning:
    """Of `planner/placers/portfolio.py`."""

    # Doubled by rounds, so that half of all moves are in the longest; on 100 nodes in one region
    # they raised 14014 to 14147 tokens/s, in ten regions 11552 to 11910.
    FIRST_MOVES_PER_NODE = 2000
    FIRST_S_PER_TRY = 0.5
    # The last has 2048 times the moves of the first: the clock ends before.
    ROUNDS = 12
    # The MILP proves placements of so few nodes best in seconds; on more it rarely does.
    NODES_FOR_MILP = 8
    # Annealing finds what there is on eight nodes at once; the MILP is for the proof.
    ROUNDS_BEFORE_MILP = 2


class RangeAnnealingTuning:
    """Of `planner/placers/range_annealing.py`."""

    # Energies are integers; finer than any difference of flows that matters.
    UNITS_PER_TOKEN = 1000
    # Of the target, for a byte too many; not measured apart.
    PENALTY_SHARE = 0.2
    # Of the target, for each layer that lacks anything: without it a small lack spread over many
    # layers, and the search rested there.
    CHARGE_SHARE = 0.3
    # 1.7 million moves/s: a tenth of a second on 4 nodes, a second on 42.
    MOVES_PER_NODE = 50_000
    MOST_MOVES = 2_000_000
    # A move that uses links examines as many nodes; this bounds its time.
    LOOKS_PER_MOVE = 4


class RegionChainTuning:
    """Of `planner/placers/region_chain.py`."""

    # Exponents of what a crossing of stages as wide as another, or a single one, carries.
    EVEN, ONE_SIDED = 0.5, 1.0
    # Of wide stages; of 0, 0.25, 0.3 and 0.4 only this one gained more than it cost.
    NARROWER = (0.4,)
    # 720 orders of six regions; of more, orders by moves.
    MOST_PERMUTED = 6
    # A slow link is counted at this quantile of those that occur: few pairs have less.
    LINK_QUANTILE = 0.1


class RegionLevelsTuning:
    """Of `planner/placers/region_levels.py`."""

    # 6 % between two flows; the winner is bisected.
    FLOWS_TABLED = 96
    LEAST_SHARE = 1 / 256  # of the bound: slower than that a group is of no use
    MOST_ENUMERATED = 4  # groups: 75 orders of levels
    # Of an annealed order of levels; milliseconds.
    MOVES = 3000
    HOT, COLD = 0.1, 0.003  # of the flow
    # The table is optimistic, so its best may not be; each costs a pattern program.
    ORDERS_PLACED = 4
    # Of levels against each other; not measured apart.
    SHIFTS = 12
    # A level a little above what the others carry costs nothing.
    AMPLE = 1.02


class StageAnnealingTuning:
    """Of `planner/placers/stage_annealing.py`."""

    # In missing layers, and temperatures in the same. Measured on 100 generated nodes in 10
    # regions: an impassable crossing that costs 2 layers leads to chains sooner than one that costs
    # 1, 5 or 10.
    CROSSING_WEIGHT = 2.0
    # From scratch, going on from a placement, and at the end.
    HOT, WARM, COLD = 0.3, 0.1, 0.03
    # Of each node among which partners are drawn; not measured apart.
    NUM_NEIGHBOURS = 8
    # A move looks at four crossings; each costs what its stages' pairs of nodes cost.
    S_PER_MOVE, S_PER_PAIR = 0.8e-6, 0.12e-6
    # On average; for the time of a move only.
    LAYERS_PER_STAGE = 2.7
    # Beyond it a bandwidth is shared by many crossings (Annealing.LINKS_SHARING).
    LINKS_OF_A_CROSSING = 16
