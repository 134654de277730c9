"""The engine in C where the package was built with a compiler, and called through ctypes.

Gives what the engine in Python gives, to the last bit. Only `planner.simulator` imports it.
"""
