"""Tuning of searches for served tokens, of survival of a loss, and of mixes of models."""


class PlanningTuning:
    """Of `planner/planning.py`."""

    # What computing the answer's flow a second time takes; kept back from the search. Preflow-push
    # takes 3, 37 and 139 ms on 42, 300 and 1000 nodes; this has room for a busy machine.
    CHECK_S_PER_NODE = 6e-4
    # Of the time, where flow is not the objective: for the flow, by programs alone or another
    # method, and when all searching ends, by how long the simulations will take. Programs end by
    # themselves within seconds; annealing for flow gains little that is served: het42 with 10 s had
    # 1415 tokens/s by estimate once the search for flow ran programs alone.
    PROGRAMS_SHARE_OF_TIME, FLOW_SHARE_OF_TIME = 0.15, 0.1
    # The bound on served tokens takes 0.1 CPU seconds on 24 nodes, 2 to 3 on het42.
    BOUND_SHARE_OF_TIME = 0.05
    ESTIMATING_SHARE_OF_TIME = 0.2  # of the search for flow, to show what it finds
    # Simulations get the rest: with less, heats show the ramp (see ContestTuning).
    MOST_SEARCH_SHARE_OF_TIME = 0.6
    LEAST_SEARCH_SHARE_OF_TIME = 0.4  # of what is left


class RobustTuning:
    """Of `planner/robust.py`."""

    # Nodes that may be lost at once.
    SPARES = 1
    # Not measured apart. With them het42 reached 3245 of at most 3338 tokens/s in 20 s.
    PATTERN_SHARE, PLAIN_SHARE = 0.3, 0.2  # of the time
    # So few moves that tries of a first round fail cheaply; doubled by rounds.
    FIRST_MOVES_PER_NODE, MOST_S_PER_TRY = 1000, 1.0
    ROUNDS = 4  # tries of as many longer rounds have not found more
    # More than any time limit of minutes allows; ends searches with a clock that does not advance.
    STAGE_ROUNDS = 60
    # By the square of the nodes: every loss of every move is estimated, in a time that grows with
    # them.
    STAGE_MOVES = 500_000
    # As ServedSearch.HOTNESS, whose loop this is.
    HOTNESS = (0.02, 0.1, 0.005)
    MOST_FAILED_ROUNDS = 4 * len(HOTNESS)
    FORECAST_SHARE = 0.3  # of the time at most, to simulate the answer


class DealTuning:
    """Of `planner/multi_model/deal.py`."""

    # Proving the last per mille took most of a short search: 3 to 6 CPU seconds a deal of 60 nodes,
    # 0.2 to 0.6 with these three, and a bound 0.3 % higher.
    BISECTION_RELATIVE_WIDTH = 2e-3
    DEAL_S = 1.0
    NODE_LIMIT = 20


class ExchangeTuning:
    """Of `planner/multi_model/exchange.py`."""

    # Each try plans two models again; 100 of them would take twice the time, so the clock ends
    # them.
    TRY_SHARE_OF_TIME = 0.02
    MOST_TRIES = 100
    # Above rounding, below any gain that matters.
    LEAST_GAIN = 1e-6
    # Of the worst level: promises know no links and no whole stages, so they may be too low as
    # well.
    LEAST_PROMISE = 0.7


class MixTuning:
    """Of `planner/multi_model/plan_models.py`."""

    # Not measured apart: the rest is for exchanges, which see links and whole stages.
    DEALS_SHARE_OF_TIME = 0.6
    LEAST_SHARE_OF_TIME = 0.1
    # Keeps weights finite where a model is served next to nothing.
    LEAST_LEVEL_SHARE = 0.1
    # By rounds: of the highest level, what a deal to fewer regions may cost; None deals for level.
    REGIONS_MAY_COST = (None, 0.05, 0.2, None, 0.1, None)


class ArenaTuning:
    """Of `planner/objectives/arena.py`."""

    # Placements known at a time; walks begin at them in turn.
    KEPT = 12
    # Short walks stay near the plan they are to better; not measured apart.
    WALK_MOVES = (10, 30, 100)
    WALK_HOTNESS = 0.01
    # Of the fewest hops. More stages leave more KV room and cross more links, so a range is seeded.
    HOP_LIMITS = (1.0, 1.15, 1.35, 1.6, 1.9, 2.3, 3.0)
    # Not measured apart: annealing needs the rest.
    PATTERNS_SHARE_OF_TIME = 0.3


class ContestTuning:
    """Of `planner/objectives/contest.py`."""

    # In lifetimes of a request. Served tokens rise, overshoot and settle: het42's plan of 10 s
    # serves 797 tokens/s in 0.4 to 0.7 lifetimes, 1424 in 1.2 to 2.5 and 1296 in 2.5 to 4.5.
    HEAT_WARM_UP = 0.8
    HEAT_WINDOW = 0.6
    FINAL_WARM_UP = 1.2
    FINAL_WINDOW = 1.3
    # How many finalists and seeds; the first of which all take at most a share of the time is run.
    # One seed moves a plan by 1 to 2 % (`compare_objectives`); more cost searching time.
    FINALS = ((3, 2), (2, 2), (2, 1))
    FINAL_SHARE = 0.4
    # Where one run decides, it has 2 lifetimes at least: a part of 45 nodes that is estimated at
    # 6894 serves 5893 in 1.4 lifetimes, 7175 in 2 and 7190 in 2.5.
    LEAST_SHARE_OF_FINAL = 0.8
    MARGIN = 0.8  # of the time, where one run decides: expected seconds err
    # Of the leader: guards below lose a final too, since chance moves less; others are no
    # challengers.
    NEAR = 0.9
    # Estimates of two plans err by less than this against each other (a guard at most a fifth too
    # low, a leader at most a quarter too high, `estimate_accuracy`), so a guard below needs no
    # simulation.
    FAR_BELOW = 0.6
    # Of the estimate of a best plan that there is no time to simulate; not measured apart.
    SURE = 0.95
    # Neighbours of a leader win more often than others that are ranked by estimate.
    BEFORE_NEIGHBOURS = 5
    IDLE_PASSES = 3


class PartitionsTuning:
    """Of `planner/objectives/partitions.py`."""

    # Of het42's four cuts by speed only the two nearest to halves beat the undivided cluster: 1549
    # and 1495 by estimate, against 1431.
    SPEED_CUTS = 2
    # At a time, where speeds are compared: about what het42's stages run.
    DECODES = 16


class ServedSearchTuning:
    """Of `planner/objectives/search.py`."""

    # Rounds double. A move takes 8 us on 24 nodes and 25 us on 42, so a first round takes
    # milliseconds.
    MOVES_PER_NODE = 150
    # Each twice as long as the one before: the clock ends all but the smallest problems.
    MOST_ROUNDS = 12
    IDLE_ROUNDS = 2
    WORTH_A_ROUND = 5e-3  # estimates err by more
    # Starts from the seeds again, each of as many rounds as the first. On geo24 (8 seeds, 60 s) one
    # start stops improving between 216 and 228 tokens/s by estimate, and twelve rounds, all of the
    # time, end between 224 and 228; after up to 12 starts all had at least 227.9.
    IDLE_STARTS = 6
    STARTS_SHARE_OF_TIME = 0.35
    # Warm, hot and cool in turn; not measured apart.
    HOTNESS = (0.02, 0.1, 0.005)
    # Of what an arena's nodes are worth in the best choice of components; arenas below are given
    # up. Not measured apart.
    HOPELESS_AT_FIRST, HOPELESS = 0.5, 0.8
    # Seeding that took all of the time left none for annealing (10 s, 300 nodes).
    SEEDING_SHARE_OF_TIME = 0.3
    # Of what is left. Where the whole cluster's arena took what others had left, parts of 100 nodes
    # in 10 regions had one round: 2126 tokens/s by estimate instead of 2444.
    ROUND_SHARE_OF_TIME = 0.3
    # Between two looks at the clock, times nodes: about 0.1 s on 42 nodes.
    MOVES_AT_ONCE = 200_000
    # Not measured apart: pins leave few placements to anneal afterwards.
    PINS_SHARE_OF_TIME = 0.6
    HOP_SHARES = (0.3, 0.45, 0.6, 0.8, 1.0)
    # A climb of free nodes around pins; per node, so that each is tried at many layers.
    IDLE_MOVES = 20
    EXCHANGED_SHARE = 0.5
    # Each is compared with all before it; not measured apart.
    COMPARED = 200
    # Each costs a heat; `estimate_accuracy` shows how far the best five by estimate are below the
    # best.
    SIMULATED = 24
    # Equal but for rounding.
    ALIKE = 1e-6
    PER_HOP = 1e-5  # of the value: among equals those of fewer hops are simulated first
    # Neighbours of the leader for the simulator; not measured apart.
    WALKS = 45
    WORTH_A_SIMULATION = 0.95  # of the estimate of the plan that a neighbour is to beat


class TrialTuning:
    """Of `planner/objectives/trial.py`."""

    # Of the compiled simulator on one busy core; only to foresee how long a simulation takes.
    TOKEN_HOPS_PER_S = 1.2e7
    ROUTED_CONNECTIONS_PER_S = 2e5
    # Fewer requests than these would compare chance, not plans.
    LEAST_WARM_UP_REQUESTS, LEAST_REQUESTS = 100.0, 400.0
    # Of larger components a share of every stage is simulated. A thousand nodes fill too slowly for
    # any time limit.
    MOST_SIMULATED_NODES = 64
    LEAST_SIMULATED_SHARE = 0.5  # of a plan by estimate; not measured apart
    # Steps down by 0.7, then a bisection to 6 %: each is a simulation.
    LATENCY_TRIES = 8
    LATENCY_STEP_DOWN = 0.7
    LATENCY_PRECISION = 1.06
    # Plans that miss the limits by estimate rank below all others, and are tried nearly idle.
    UNLIKELY = 1e-3
    NEARLY_IDLE = 0.05
    MOST_LONGER = 10.0


class ServedBoundTuning:
    """Of `planner/bounds/served.py`."""

    # Few and wide classes first, each twice as wide as the one before; those in use are divided
    # until LEAST_RATIO of their ends.
    SECONDS, PARTS, LEAST_RATIO = 12, 4, 1.003
    # Divisions in a row that gain so little end a search.
    IDLE, LEAST_GAIN = 3, 1e-3
    # Of column generation; ends programs that rounding keeps from their end.
    MOST_ROUNDS = 200
    PRECISION = 1e-4  # of a program
