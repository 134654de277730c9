"""Signatures of what is posted, and how the secrets behind them are kept. See docs/webhooks.md.

The signature covers the time, the delivery's number and the body. Receivers should refuse messages
older than some minutes, and delivery numbers that they have seen.
"""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

HEADER = "X-Helix-Signature"
DELIVERY_HEADER = "X-Helix-Delivery"


class SecretUnreadable(Exception):
    """The secret was sealed under another SECRET_KEY."""


def new_secret() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


def seal(secret: str) -> str:
    """The encrypted secret, as it is stored in the database."""
    return _fernet().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """Decrypt a stored secret. Raises SecretUnreadable."""
    try:
        return _fernet().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise SecretUnreadable(
            "the channel's secret cannot be read: SECRET_KEY has changed; make a new secret"
        ) from error


def signature(secret: str, *, body: bytes, delivery: str, at: datetime) -> str:
    """`t=UNIX,v1=HEX`."""
    seconds = int(at.timestamp())
    signed = f"{seconds}.{delivery}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def _fernet() -> Fernet:
    key = hmac.new(settings.SECRET_KEY.encode(), b"helixweb.webhooks", hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(key))
