"""The inner loops of the annealing methods, in C where the package was built with a compiler.

The loop that replanning needs is in Python too. Only `planner.placers` imports them.
"""
