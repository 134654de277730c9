"""Ask what runs on this machine, and the site, past any proxy of the environment."""

import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from runtime.protocol.trust import trusting

ASKED_WITHIN_S = 5.0


def ask(url: str, *, issuers: ssl.SSLContext | bool = False) -> httpx.Response:
    """The answer; by default any issuer's certificate will do. Raises httpx.TransportError."""
    return httpx.get(
        url, timeout=ASKED_WITHIN_S, verify=issuers, trust_env=False, follow_redirects=True
    )


def answers(url: str, *, any_status: bool = False) -> bool:
    """True if it answers with a success, or at all."""
    try:
        return ask(url).is_success or any_status
    except httpx.TransportError:
        return False


def certificate_of(url: str, *, ca: Path | None) -> bytes:
    """The trusted certificate of an https site. Raises OSError, SSLCertVerificationError."""
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port or 443)
    with (
        socket.create_connection(place, timeout=ASKED_WITHIN_S) as raw,
        trusting(ca).wrap_socket(raw, server_hostname=parts.hostname) as safe,
    ):
        return safe.getpeercert(binary_form=True) or b""
