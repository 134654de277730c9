"""A loopback port that is free."""

import socket


def free_port() -> int:
    """Free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
