"""Whether the site is reached where people are told to, and how long its certificate is good."""

import contextlib
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from django.conf import settings

from helixweb.operations.doctor.findings import Finding, failed, ok, warning
from runtime.protocol.trust import trusting

ASKED_WITHIN_S = 3.0
SOON = timedelta(days=21)
DATE_IS_OLD_S = 2.0


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
            if is_ours(host, number):
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
            _issuers().wrap_socket(raw, server_hostname=parts.hostname) as safe,
        ):
            encoded = safe.getpeercert(binary_form=True)
    except ssl.SSLCertVerificationError as error:
        said = f"the certificate of {parts.hostname} is not trusted: {error.verify_message}"
        yield failed(
            "certificate",
            said,
            "renew it, send the whole chain, or give its issuer with HELIX_CA=FILE",
        )
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


def is_ours(host: str, number: int) -> bool:
    """A web process answers there, or a coordinator, which says 503 as long as it has no plan to
    serve; by http, or the web by https."""
    for scheme, path in (("http", "healthz"), ("http", "health"), ("https", "healthz")):
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, says_status = ask(f"{scheme}://{host}:{number}/{path}", any_certificate=True)
            if says_status and status in (200, 503):
                return True
    return False


def ask(url: str, *, any_certificate: bool = False) -> tuple[int, bool]:
    """Status, and whether it says "status" as ours do; no proxy of the environment. Raises OSError,
    HTTPException."""
    context = _issuers()
    if any_certificate:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=ASKED_WITHIN_S) as answer:
            return answer.status, b'"status"' in answer.read(4096)
    except urllib.error.HTTPError as error:
        return error.code, b'"status"' in error.read(4096)


def _issuers() -> ssl.SSLContext:
    """Those that the site trusts, itself among them."""
    own = settings.HELIX_CA or settings.HELIX_TLS_CERTIFICATE
    try:
        return trusting(Path(own) if own else None)
    except OSError:
        return trusting(None)


def clock_of(url: str) -> float | None:
    """By how many seconds the clock of whoever answers there is ahead; None: it does not tell.
    Raises OSError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ASKED_WITHIN_S) as answer:
            told = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        told = error.headers.get("Date")
    if not told:
        return None
    return ahead_s(parsedate_to_datetime(told), now=datetime.now(UTC))


def ahead_s(told: datetime, *, now: datetime) -> float:
    """Of a time in whole seconds that is written once a second, so that it is up to two old."""
    skew_s = (told - now).total_seconds()
    return min(0.0, skew_s + DATE_IS_OLD_S) if skew_s < 0 else skew_s


def _why(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)
