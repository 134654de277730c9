"""Placement searches: the baselines (Helix §6.2), the MILP (§4.4), patterns, annealing, and all.

Placers do not know each other, but for the portfolio; `planner.planning` chooses by name.
"""
