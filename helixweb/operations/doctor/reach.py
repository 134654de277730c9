"""Checks that the site answers at its public URL, and that its certificate does not expire."""

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from cryptography import x509
from django.conf import settings

from helixweb.operations.asking import ask, certificate_of
from helixweb.operations.doctor.findings import Finding, failed, ok, warning
from runtime.protocol.trust import trusting

SOON = timedelta(days=21)
DATE_IS_OLD_S = 2.0


def site(url: str) -> Iterator[Finding]:
    """`/readyz` answers there."""
    try:
        status = ask(f"{url}/readyz", issuers=trusting(_issuer())).status_code
    except (OSError, httpx.TransportError) as error:
        yield failed(
            "web site",
            f"{url} does not answer: {error}",
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
    if not url.startswith("https://"):
        return
    try:
        found = x509.load_der_x509_certificate(certificate_of(url, ca=_issuer()))
        yield expiry(found.not_valid_after_utc, now=now)
    except ssl.SSLCertVerificationError as error:
        yield failed(
            "certificate",
            f"the certificate of {url} is not trusted: {error.verify_message}",
            "renew it, send the whole chain, or give its issuer with HELIX_CA=FILE",
        )
    except OSError:
        return  # reported by `site`


def expiry(ends: datetime, *, now: datetime) -> Finding:
    """Finding on the remaining validity of a certificate."""
    left = ends - now
    said = f"the certificate is good until {ends:%Y-%m-%d}"
    if left < timedelta():
        return failed("certificate", f"the certificate ended at {ends:%Y-%m-%d}", "renew it")
    if left < SOON:
        return warning("certificate", f"{said}, {left.days} days", "renew it")
    return ok("certificate", said)


def is_ours(host: str, number: int) -> bool:
    """True if a web process answers there, by http or https, or a coordinator, which says 503
    while it has no plan to serve."""
    for scheme, path in (("http", "healthz"), ("http", "health"), ("https", "healthz")):
        try:
            answer = ask(f"{scheme}://{host}:{number}/{path}")
        except httpx.TransportError:
            continue
        if answer.status_code in (200, 503) and b'"status"' in answer.content:
            return True
    return False


def _issuer() -> Path | None:
    """The file of certificates that the site trusts, itself among them."""
    own = settings.HELIX_CA or settings.HELIX_TLS_CERTIFICATE
    return Path(own) if own else None


def clock_of(url: str) -> float | None:
    """Seconds that the server's clock is ahead; None: it sends no date. Raises
    httpx.TransportError."""
    date = ask(url).headers.get("Date")
    return date and ahead_s(parsedate_to_datetime(date), now=datetime.now(UTC))


def ahead_s(server_time: datetime, *, now: datetime) -> float:
    """Clock difference from a Date header: in whole seconds, written once a second, so it may be up
    to two seconds old."""
    skew_s = (server_time - now).total_seconds()
    return min(0.0, skew_s + DATE_IS_OLD_S) if skew_s < 0 else skew_s
