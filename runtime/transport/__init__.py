"""Moves `protocol.data` messages between peers: ZeroMQ with CURVE, and an in-memory double.

Stage and coordinator import it; it knows nothing of models, requests or HTTP.
"""
