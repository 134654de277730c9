"""Routers: which pipeline a request takes, and how much KV cache is spoken for.

Pure and deterministic; the coordinator and the simulator import the same ones.
"""
