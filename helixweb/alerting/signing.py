"""Signatures of what is posted, and how the secrets behind them are kept. See docs/webhooks.md.

The signature covers the time, the delivery and the body. Who checks it refuses what is older than
some minutes and, for longer memory, deliveries that it has seen.
"""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

HEADER = "X-Helix-Signature"
DELIVERY_HEADER = "X-Helix-Delivery"
TOLERANCE = timedelta(minutes=5)


class Unreadable(Exception):
    """The secret was sealed under another SECRET_KEY."""


class BadSignature(Exception):
    """The message says what is wrong."""


def new_secret() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


def seal(secret: str) -> str:
    """As it stands in the database."""
    return _fernet().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """Raises Unreadable."""
    try:
        return _fernet().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Unreadable(
            "the channel's secret cannot be read: SECRET_KEY has changed; make a new secret"
        ) from error


def signature(secret: str, *, body: bytes, delivery: str, at: datetime) -> str:
    """`t=UNIX,v1=HEX`."""
    seconds = int(at.timestamp())
    return f"t={seconds},v1={_digest(secret, seconds, delivery, body)}"


def verify(secret: str, given: str, *, body: bytes, delivery: str, now: datetime) -> None:
    """What a receiver does. Raises BadSignature."""
    parts = dict(part.split("=", 1) for part in given.split(",") if "=" in part)
    seconds = parts.get("t", "")
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 12):
        raise BadSignature("the signature has no time")
    if abs(now.timestamp() - int(seconds)) > TOLERANCE.total_seconds():
        raise BadSignature("the signature is too old, or of a clock that is wrong")
    expected = _digest(secret, int(seconds), delivery, body)
    if not hmac.compare_digest(expected, parts.get("v1", "")):
        raise BadSignature("the signature is not of this body, delivery and secret")


def _digest(secret: str, seconds: int, delivery: str, body: bytes) -> str:
    signed = f"{seconds}.{delivery}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _fernet() -> Fernet:
    key = hmac.new(settings.SECRET_KEY.encode(), b"helixweb.webhooks", hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(key))
