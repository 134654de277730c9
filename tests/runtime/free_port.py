"""A loopback port that is free."""

from runtime.protocol.ports import take_any_port


def free_port() -> int:
    """Given to no other of our processes, those of other tests included, until this one ends."""
    return take_any_port("127.0.0.1")
