"""Checks that an alert came from the site, with nothing but Python's own library."""

import hashlib
import hmac
import time

OLDEST_S = 300


def came_from_the_site(secret: str, signature: str, delivery: str, body: bytes) -> bool:
    """`signature` and `delivery` are the headers X-Helix-Signature and X-Helix-Delivery; `body` is
    what was posted, byte by byte. Keep deliveries that you have seen, and take each once."""
    parts = dict(part.split("=", 1) for part in signature.split(",") if "=" in part)
    moment = parts.get("t", "")
    if not moment.isdigit() or abs(time.time() - int(moment)) > OLDEST_S:
        return False
    signed = f"{moment}.{delivery}.".encode() + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts.get("v1", ""))
