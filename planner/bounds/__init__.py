"""Proven upper bounds on the flow of every placement: knapsack, pattern, crossing, best of all.

`planner.placers` and `planner.planning` import it; `best` has them all.
"""
