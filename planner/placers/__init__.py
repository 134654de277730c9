"""Placement searches: separate pipelines, Swarm, Petals (Helix §6.2) and the MILP (§4.4).

Placers do not know each other; only `planner.compute_plan` and `planner.__main__` import them.
"""
