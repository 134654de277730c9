"""Maximum flow over integer capacities: Dinic's algorithm in C, and the same in Python.

`planner.max_flow` and `planner.placers` import it; it knows of numbers only, not of placements.
"""
