"""A running placement and a changed problem -> answers, from no bytes moved to the best flow.

The use case is `compute_replan.py`.
"""
