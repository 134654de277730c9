"""A stage's share of a checkpoint: its config, its weights, the mathematics of its layers.

Loads torch. Imported by runtime.engine and runtime.profiler only; knows no requests and no pages.
"""
