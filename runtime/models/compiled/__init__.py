"""What a step spends its time in, in C, for CPUs whose torch has no good kernels of its own.

`runtime.models.linear` and `runtime.engine.attention` alone import it; it knows of memory and
numbers, not of models and requests.
"""
