"""Sustained decode throughput, TTFT and TPOT of a plan as a fixed point: microseconds instead of
a simulation, so that placements can be searched by it. Above the flow, below placers; only
placers, objectives, compute_plan and commands import it.
"""
