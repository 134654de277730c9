"""Rows times a weight matrix in C, for CPUs whose torch has no good product of their own.

`runtime.models.linear` alone imports it; it knows of memory and numbers, not of models.
"""
