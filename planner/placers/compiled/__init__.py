"""The inner loops of the annealing placers: in C where the package was built with a compiler, and
the same loops in Python elsewhere, to the same answer. Only `planner.placers` imports them.
"""
