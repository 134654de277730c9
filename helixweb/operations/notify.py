"""Tells systemd how far the service is (sd_notify), if it was started by it."""

import os
import socket


def notify(state: str) -> bool:
    """Send e.g. "READY=1"; whether somebody wanted to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # in the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(state.encode(), address)
        except OSError:
            return False
    return True
