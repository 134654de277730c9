"""Requests to come: lengths and arrivals, from traces or generators, and backlogs.

Knows nothing of clusters; the simulator, commands and benchmarks import it.
"""
