"""POST with an Idempotency-Key: done once, however often it is sent.

The first request claims the key in a transaction of its own. Then what it does and its answer, kept
for a day, are written in one more: if the process dies in between there is neither, and once the
claim has run out the next request does it. A refusal keeps nothing, so that what was refused can be
mended and sent with the same key.
"""

import hmac
import json
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
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
from helixweb.common.rest.etags import tagged
from helixweb.common.rest.models import KeptAnswer

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_KEY_LENGTH = 255
KEPT_FOR = timedelta(hours=24)
# Longer than any request of ours is at work.
CLAIMED_FOR = timedelta(seconds=60)
MAX_KEPT = 10_000


class UnderWay(exceptions.APIException):
    status_code = 409
    default_code = "under_way"
    default_detail = (
        "A request with this Idempotency-Key is at work; ask again in a moment to get its answer."
    )
    wait = 1  # seconds


class KeyOfAnother(exceptions.APIException):
    status_code = 422
    default_code = "key_of_another_request"
    default_detail = (
        "This Idempotency-Key came with another address or body before; "
        "send that again, or a new key with this."
    )


class Unreadable(exceptions.APIException):
    status_code = 409
    default_code = "unreadable"
    default_detail = (
        "This request was done before, but SECRET_KEY has changed since, so that its answer cannot "
        "be read; look at what it made, or send it with a new key to have it done again."
    )


class OtherRights(exceptions.APIException):
    status_code = 409
    default_code = "other_rights"
    default_detail = (
        "This request was done before, but your roles have changed since, so that its answer is "
        "not given again; look at what it made."
    )


class TooManyKept(exceptions.Throttled):
    default_code = "too_many_keys"

    def __init__(self) -> None:
        detail = (
            f"{MAX_KEPT:,} answers are kept for your keys of the last 24 hours, and more are not; "
            "send this without Idempotency-Key, or later."
        )
        super().__init__(wait=3600, detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key that this request may use, as long as the row has `number`."""

    row: KeptAnswer
    number: uuid.UUID
    secret: Fernet


def answered_once(request: Request, handler: Callable[..., Response]) -> Callable[..., Response]:
    """`handler`, or the answer it gave before to the same request with the same key."""
    key = request.headers.get(HEADER)
    if key is None:
        return handler
    if not 0 < len(key) <= MAX_KEY_LENGTH or not all("!" <= letter <= "~" for letter in key):
        raise exceptions.ValidationError(
            {HEADER: [f"Give 1 to {MAX_KEY_LENGTH} visible ASCII letters, such as a UUID."]}
        )

    def once(*args: Any, **kwargs: Any) -> Response:
        claim = _claim(request, key, now=timezone.now())
        if claim.row.answer:
            return _replay(request, claim)
        try:
            with transaction.atomic():
                response = handler(*args, **kwargs)
                _keep(request, response, claim)
        except Exception:
            KeptAnswer.objects.filter(pk=claim.row.pk, claim=claim.number, answer=b"").delete()
            raise
        return response

    return once


def forget_old_answers(now: datetime) -> None:
    """Those of more than a day ago."""
    KeptAnswer.objects.filter(created_at__lt=now - KEPT_FOR).delete()


def _claim(request: Request, key: str, *, now: datetime) -> Claim:
    """Raises KeyOfAnother, UnderWay, TooManyKept."""
    actor, number = _actor(request), uuid.uuid4()
    secret = hmac.digest(settings.SECRET_KEY.encode(), f"{actor} {key}".encode(), "sha256")
    whole = f"{request.method} {request.get_full_path()} ".encode() + request.body
    fresh = {
        "request_hash": sha256(whole).hexdigest(),
        "claim": number,
        "claimed_until": now + CLAIMED_FOR,
        "created_at": now,
    }
    mine = KeptAnswer.objects.filter(actor=actor)
    row, is_new = mine.get_or_create(
        actor=actor, key_hash=sha256(key.encode()).hexdigest(), defaults=fresh
    )
    if is_new and mine.count() > MAX_KEPT:
        row.delete()
        raise TooManyKept
    if not is_new and row.created_at < now - KEPT_FOR:
        is_new = _take_over(row, {**fresh, "answer": b""})
    if row.request_hash != fresh["request_hash"]:
        raise KeyOfAnother
    if not (is_new or row.answer):
        # Nothing was written under a claim that ran out: what writes looks whether it is its own.
        unheld = row.claimed_until < now
        if not (unheld and _take_over(row, fresh)):
            raise UnderWay
    return Claim(row=row, number=number, secret=Fernet(urlsafe_b64encode(secret)))


def _take_over(row: KeptAnswer, values: dict[str, Any]) -> bool:
    """Of several that try, one does."""
    same = KeptAnswer.objects.filter(pk=row.pk, claim=row.claim, answer=row.answer)
    taken = same.update(**values) == 1
    for name, value in values.items():
        setattr(row, name, value)
    return taken


def _keep(request: Request, response: Response, claim: Claim) -> None:
    document = {
        "rights": _rights(request),
        "status": response.status_code,
        "data": response.data,
        "headers": {name: response[name] for name in ("Location",) if name in response},
        "edit_tag": getattr(response, "edit_tag", None),
    }
    answer = claim.secret.encrypt(json.dumps(document, cls=JSONEncoder).encode())
    row = KeptAnswer.objects.filter(pk=claim.row.pk, claim=claim.number)
    if row.update(answer=answer) != 1:
        raise UnderWay  # this took longer than the claim held, and another does it


def _replay(request: Request, claim: Claim) -> Response:
    try:
        kept = json.loads(claim.secret.decrypt(bytes(claim.row.answer)))
    except InvalidToken as error:
        raise Unreadable from error
    if kept.get("rights", "") != _rights(request):
        raise OtherRights
    headers = {**kept["headers"], REPLAYED: "true"}
    response = Response(kept["data"], status=kept["status"], headers=headers)
    return tagged(request, response, kept["edit_tag"]) if kept["edit_tag"] else response


def _rights(request: Request) -> str:
    """Equal for those who may see the same; empty where nobody is asked who they are."""
    return repr(getattr(request._request, "helix_reads_as", ""))


def _actor(request: Request) -> str:
    """Whose key it is. Who shows nothing, such as a machine that joins, is nobody: its body holds
    its secret, and the answer is for the same body only."""
    if isinstance(request.auth, ApiKey):
        return f"key:{request.auth.pk}"
    return f"user:{request.user.pk}" if request.user.is_authenticated else "nobody"
