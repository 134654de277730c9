"""Relays whole requests to instances: chooses one, watches for failures, answers the client.

Torch-free. The `front` program and the coordinator use it.
"""
