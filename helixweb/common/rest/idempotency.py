"""POST with an Idempotency-Key: done once, however often it is sent.

What a request does and its answer, kept for a day, are written in one transaction: if the process
dies there is neither, and the next request does it. A second request that comes meanwhile waits for
the first. A refusal keeps nothing, so that what was refused can be corrected and sent with the same
key.
"""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from helixweb.common.models import ApiKey
from helixweb.common.refusals import Conflict, Refused, Unusable
from helixweb.common.rest.etags import tagged
from helixweb.common.rest.models import KeptAnswer

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_KEY_LENGTH = 255
KEPT_FOR = timedelta(hours=24)
MAX_KEPT = 10_000


class KeyOfAnother(Unusable, Refused):
    default_code = "key_of_another_request"


class AnswerUnreadable(Conflict):
    default_code = "unreadable"


class OtherRights(Conflict):
    default_code = "other_rights"


class TooManyKept(exceptions.Throttled):
    default_code = "too_many_keys"


def answered_once(request: Request, handler: Callable[..., Response]) -> Callable[..., Response]:
    """`handler`, or the answer it gave before to the same request with the same key."""
    key = request.headers.get(HEADER)
    if key is None:
        return handler
    if not 0 < len(key) <= MAX_KEY_LENGTH or not all("!" <= letter <= "~" for letter in key):
        raise exceptions.ValidationError(
            {HEADER: [f"Give 1 to {MAX_KEY_LENGTH} visible ASCII letters, such as a UUID."]}
        )
    secret = hmac.digest(
        settings.SECRET_KEY.encode(), f"{_actor(request)} {key}".encode(), "sha256"
    )
    cipher = Fernet(urlsafe_b64encode(secret))

    def once(*args: Any, **kwargs: Any) -> Response:
        with transaction.atomic():
            row = _row_of(request, key, now=timezone.now())
            if row.answer:
                return _replay(request, row, cipher)
            response = handler(*args, **kwargs)
            _keep(request, response, row, cipher)
            return response

    return once


def forget_old_answers(now: datetime) -> None:
    """Delete answers older than a day."""
    KeptAnswer.objects.filter(created_at__lt=now - KEPT_FOR).delete()


def _row_of(request: Request, key: str, *, now: datetime) -> KeptAnswer:
    """The row of the key; without an answer if it is new. Raises KeyOfAnother, TooManyKept."""
    whole = f"{request.method} {request.get_full_path()} ".encode() + request.body
    request_hash = sha256(whole).hexdigest()
    whose = {"actor": _actor(request), "key_hash": sha256(key.encode()).hexdigest()}
    KeptAnswer.objects.filter(**whose, created_at__lt=now - KEPT_FOR).delete()
    row, is_new = KeptAnswer.objects.get_or_create(
        **whose, defaults={"request_hash": request_hash, "created_at": now}
    )
    if is_new and KeptAnswer.objects.filter(actor=row.actor).count() > MAX_KEPT:
        raise TooManyKept(
            wait=3600,
            detail=f"{MAX_KEPT:,} answers are kept for your keys of the last 24 hours, and more "
            "are not; send this without Idempotency-Key, or later.",
        )
    if row.request_hash != request_hash:
        raise KeyOfAnother(
            "This Idempotency-Key came with another address or body before; send that again, or a "
            "new key with this."
        )
    return row


def _keep(request: Request, response: Response, row: KeptAnswer, cipher: Fernet) -> None:
    document = {
        "rights": _rights(request),
        "status": response.status_code,
        "data": response.data,
        "headers": {name: response[name] for name in ("Location",) if name in response},
        "edit_tag": getattr(response, "edit_tag", None),
    }
    row.answer = cipher.encrypt(json.dumps(document, cls=JSONEncoder).encode())
    row.save(update_fields=["answer"])


def _replay(request: Request, row: KeptAnswer, cipher: Fernet) -> Response:
    try:
        kept = json.loads(cipher.decrypt(bytes(row.answer)))
    except InvalidToken as error:
        raise AnswerUnreadable(
            "This request was done before, but SECRET_KEY has changed since, so that its answer "
            "cannot be read; look at what it made, or send it with a new key to have it done again."
        ) from error
    if kept.get("rights", "") != _rights(request):
        raise OtherRights(
            "This request was done before, but your roles have changed since, so that its answer "
            "is not given again; look at what it made."
        )
    headers = {**kept["headers"], REPLAYED: "true"}
    response = Response(kept["data"], status=kept["status"], headers=headers)
    return tagged(request, response, kept["edit_tag"]) if kept["edit_tag"] else response


def _rights(request: Request) -> str:
    """A key of the user's rights: equal for equal rights; empty without a user."""
    return repr(getattr(request._request, "helix_reads_as", ""))


def _actor(request: Request) -> str:
    """The owner of an idempotency key. A request without credentials, such as of a machine that
    joins, has its secret in its body, and the stored answer is for the same body only."""
    if isinstance(request.auth, ApiKey):
        return f"key:{request.auth.pk}"
    return f"user:{request.user.pk}" if request.user.is_authenticated else "nobody"
