"""The estimate's fixed point and the search that uses it, in C where the package was built with a
compiler. Only `planner.estimate` and the placer that searches by estimates import it.
"""
