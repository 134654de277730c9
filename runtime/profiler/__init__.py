"""Measures what this machine does with a checkpoint: the T_j of the planner's problem files.

Loads torch, through runtime.engine and runtime.models. Only the `profile` program imports it.
"""
