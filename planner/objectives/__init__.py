"""Objectives other than flow, and the search for them: estimates guide the search, simulations
decide. Above placers and the simulator; only compute_plan and commands import it.
"""
