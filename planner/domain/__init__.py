"""The nouns: cluster, model, profile, problem, placement, flow, pipeline, plan.

Frozen dataclasses, whole when made, checked in `__post_init__`. Every package may import them.
"""
