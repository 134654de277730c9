"""Forecasts: what a plan delivers under a workload, request by request, with nothing real running.

Discrete events; commands, objectives, pages and benchmarks import it.
"""
