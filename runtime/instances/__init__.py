"""Whole-model instances: engines of others and our own as processes, started, watched, drained.

Torch-free. `runtime.front` routes requests to them; nothing of `runtime` below may import it.
"""
