"""Whether the site is reached where people are told to, and how long its certificate is good."""

import contextlib
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from cryptography import x509

from helixweb.operations.doctor.findings import Finding, failed, ok, warning

ASKED_WITHIN_S = 3.0
SOON = timedelta(days=21)


def site(url: str) -> Iterator[Finding]:
    """`/readyz` answers there."""
    try:
        status, _ = ask(f"{url}/readyz")
    except OSError as error:
        yield failed(
            "web site",
            f"{url} does not answer: {_why(error)}",
            "start it with `helixweb up`, or correct HELIX_URL; with a proxy in front, see that "
            "it passes requests on",
        )
        return
    if status == 200:
        yield ok("web site", f"{url} is ready")
    else:
        yield failed("web site", f"{url}/readyz answers {status}", "see the findings above")


def port(host: str, number: int, *, option: str) -> Iterator[Finding]:
    """Free for the site, or used by it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            with contextlib.suppress(OSError):
                status, server = ask(f"http://{host}:{number}/healthz")
                if status == 200 and server == "helixweb":
                    yield ok("port", f"{number} is used by this site")
                    return
            remedy = f"stop what uses it, or give `up` another with {option}"
            yield failed("port", f"{host}:{number} is not free: {error.strerror}", remedy)
            return
    yield ok("port", f"{number} is free")


def certificate(url: str, *, now: datetime) -> Iterator[Finding]:
    """Trusted, for this name, and good for some weeks more."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return
    place = (parts.hostname, parts.port or 443)
    try:
        with (
            socket.create_connection(place, timeout=ASKED_WITHIN_S) as raw,
            ssl.create_default_context().wrap_socket(raw, server_hostname=parts.hostname) as safe,
        ):
            encoded = safe.getpeercert(binary_form=True)
    except ssl.SSLCertVerificationError as error:
        said = f"the certificate of {parts.hostname} is not trusted: {error.verify_message}"
        yield failed("certificate", said, "renew it, send the whole chain, or trust its issuer")
        return
    except OSError:
        return  # told by `site`
    if encoded is not None:
        yield expiry(x509.load_der_x509_certificate(encoded).not_valid_after_utc, now=now)


def expiry(ends: datetime, *, now: datetime) -> Finding:
    """How long a certificate is good."""
    left = ends - now
    said = f"the certificate is good until {ends:%Y-%m-%d}"
    if left < timedelta():
        return failed("certificate", f"the certificate ended at {ends:%Y-%m-%d}", "renew it")
    if left < SOON:
        return warning("certificate", f"{said}, {left.days} days", "renew it")
    return ok("certificate", said)


def ask(url: str) -> tuple[int, str]:
    """Status, and "helixweb" if it says so; no proxy of the environment. Raises OSError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ASKED_WITHIN_S) as answer:
            content = answer.read(4096)
            return answer.status, "helixweb" if b'"status"' in content else ""
    except urllib.error.HTTPError as error:
        return error.code, ""


def clock_of(url: str) -> float | None:
    """By how many seconds the clock of whoever answers there is ahead, to a second; None: it does
    not answer or does not tell. Raises OSError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ASKED_WITHIN_S) as answer:
            told = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        told = error.headers.get("Date")
    if not told:
        return None
    return (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds()


def _why(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)
