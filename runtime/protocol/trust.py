"""Whose certificates of servers are trusted: those of the system's issuers, and one's own. And
which servers need none, as what they are sent stays on this machine."""

import argparse
import functools
import ssl
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

CA_HELP = (
    "PEM file with certificates to trust beside the system's issuers: of a private CA, or the "
    "site's own"
)


def ca_file(text: str) -> Path:
    """A file of certificates named on a command line. Raises ArgumentTypeError."""
    path = Path(text).expanduser()
    try:
        trusting(path)
    except OSError as error:  # ssl.SSLError is one
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be used ({error.strerror or error}); give a PEM file of certificates"
        ) from None
    return path.resolve()


def trusting(ca: Path | None) -> ssl.SSLContext:
    """Verifies servers by the system's issuers and `ca`, whose certificates may be of a server
    itself. Raises OSError for a file that cannot be used."""
    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@functools.cache
def issuers() -> ssl.SSLContext:
    """Verifies servers by the system's issuers: read once, as this takes 20 ms."""
    return trusting(None)


def why_untrusted(error: BaseException | None) -> str:
    """Why the verification failed that `error` comes of; empty if it comes of none."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message)
        error = getattr(error, "reason", None) or error.__cause__ or error.__context__
        if not isinstance(error, BaseException):
            return ""
    return ""


def stays_here(url: str) -> bool:
    """Whether what is sent to this address stays on the machine, as far as its host says."""
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a name or an address means the machine itself, whichever machine that is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)
