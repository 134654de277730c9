"""Mixed-integer solvers behind one interface: a model in, solutions and bounds out.

`base` is the interface, `gurobi` and `highs` the solvers, `choice` picks one by name.
Only `planner.placers` may import this package.
"""
