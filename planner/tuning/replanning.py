"""Tuning of replanning."""


class ReplanAnswersTuning:
    """Of `planner/replanning/answers.py`."""

    # Of the bytes that a plan from scratch moves: the aim of `benchmarks.planner.replan`.
    BUDGET_SHARE = 0.25


class ReplanAroundTuning:
    """Of `planner/replanning/around.py`."""

    # A longer search from scratch raises the goal; a shorter one leaves time to come near it.
    SCRATCH_SHARE = 0.3
    # A program that was cut off at 0.45 of the time left 0.502 of the flow within a quarter of the
    # bytes (het42 without node-40), with 0.6 0.958. Programs end by themselves on most losses.
    STAGES_SHARE = 0.8
    # Half of the bound, in a hundredth of an annealing: a first answer within milliseconds.
    REPAIR_SHARE = 0.5
    REPAIR_EFFORT = 0.01
    REPAIR_HOTNESS = (0.1, 0.4)
    # With a higher charge for layers that lack anything. Around node-40's loss on het42 60 CPU
    # seconds of such found 0.974 within a quarter of the bytes six times, cooler and shorter ones
    # never.
    HOTNESS = (0.35, 0.5)
    # Links leave few ways from one good placement to the next, so tries that see them run hotter.
    HOTNESS_ON_LINKS = (0.3, 1.0, 1.6)
    # For fewer bytes at a flow that is known; not measured apart.
    COOL_HOTNESS = (0.1, 0.2, 0.3)
    # Not measured apart.
    CLIMB_TRIES = 60
    # Coverage that promises this much more than its flow misleads: links are then seen.
    MISLED_SHARE = 0.01
    # A longer search from scratch may find more than the goal: so aim above the 3 % that may be
    # lost.
    GOAL_SHARES = (0.971, 0.98, 0.99, 1.0)
    # Short tries at each share first; the loop is bounded by its patience.
    GOAL_EFFORT = 0.3
    # Where many layers must shift, long annealings from far above find what many short ones do not.
    # Nothing stops one on its way: it may be as long as a small part of the time is.
    LONG_EFFORT_PER_S = 0.5
    MOST_EFFORT = 8.0
    # Failures in a row before a share is given up.
    PATIENCE = 60
    # Below that a step costs a try and shows nothing.
    LEAST_GAIN = 2e-3
    # Beyond the shares, 1 % more each time.
    STEP = 0.01


class ReplanByStagesTuning:
    """Of `planner/replanning/by_stages.py`."""

    # What may be lost of the flow that a long search from scratch would find. That flow lies
    # between the most that is known and the bound: so far on the way, in this order.
    SHARE = 0.97
    WAYS = (0.5, 0.75, 0.35, 0.0, 1.0)
    # And then, where all that takes too many bytes, from there to one that often takes few, and
    # half of the way back. het42 without an A100 keeps 0.967 of the flow within a quarter of the
    # bytes of an aligned plan by the second step, 0.951 by the first; a third found no more.
    STEP_DOWN = 0.03
    STEPS = 2
    # A longer search from scratch often moves fewer bytes; an answer that loads no more than this
    # share of the budget is cheap in any case.
    CHEAP_SHARE = 0.75
    # Links, which the program does not see, take more of its flow than this: it is of no use here.
    MISLED_SHARE = 0.1


class ReplanServedTuning:
    """Of `planner/replanning/served.py`."""

    SCRATCH_SHARE = 0.2  # as ReplanAround.SCRATCH_SHARE
    LEAST_SEARCH_SHARE = 0.6  # around what runs, of what is left after the search from scratch
    OFFERED = 5  # of the best from scratch
    # A first valid plan within a second on 42 nodes.
    REPAIR_MOVES_PER_NODE, REPAIR_HOTNESS = 100, 0.1
    # Of an annealing: more nodes have more optima, but a move takes a time that grows with them.
    MOVES_PER_NODE, MOVES_BY_NODES, MOST_EFFORT = 2000, 1_150_000, 4
    # What is asked of a replanning: 0.97 of what a search from scratch is forecast to serve.
    GOAL_SHARE = 0.97
    # As ReplanAround.CLIMB_TRIES, of which an estimate costs more.
    CLIMB_TRIES = 40
    PATIENCE = 14  # every way twice
    # Below it a round counts as idle.
    LEAST_GAIN = 1e-3
    # As Arena.WALK_MOVES.
    WALKS, WALK_MOVES, WALK_HOTNESS = 30, (10, 30, 100), 0.01
    # Of the best within the budget, and of those that load least.
    SIMULATED, NEAREST = 12, 3
    WORTH_A_SIMULATION = 0.95  # of the best estimate within the budget


class StayCoversTuning:
    """Of `planner/replanning/stay_covers.py`."""

    # Of covers for one length: those of the fastest nodes, hence of the fewest, come first.
    MOST_COVERS = 400


class StayNestedTuning:
    """Of `planner/replanning/stay_nested.py`."""

    # Of nested stages of one length at one place: no more are tried.
    MOST_TRIED = 8


class StayPatternsTuning:
    """Of `planner/replanning/stay_patterns.py`."""

    # A node that carries less of the flow beside shorter stages is not worth a nested stage.
    LEAST_NESTED_SHARE = 0.01
    # Nodes beside a row of shorter stages; more have too many covers.
    MOST_OUTER = 2
    # Two nodes of a kind one after the other, beside shorter stages, hold no more layers together.
    LONGEST_TWICE = 16
    # Where kinds are many, nested stages are not made once so many covers are known (counted again
    # for every nested stage). The published 42 nodes need 14 000.
    MOST_COVERS_TOGETHER = 20_000


class StayProgramTuning:
    """Of `planner/replanning/stay_program.py`."""

    # Two to three seconds a target on het42.
    MOST_ROUNDS = 60
    MOST_COLUMNS = 10_000
    # Columns of a round below which exact prices are worth their time.
    FEW_FRESH = 60
    # The linear program is nearly integral, so a few dozen branches find its optimum.
    NODES = 300
    # Answers are whole layers: a gap of half a layer is none.
    GAP_LAYERS = 0.5
    # The integer program takes only columns whose price exceeds their value by no more: a choice
    # with another one loads more beyond the linear program's optimum. First few, for these solve
    # far sooner.
    SPARE_LAYERS = (2.0, 8.0, 40.0)
