"""Reads the control protocol's messages out of requests."""

import json
import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from rest_framework import exceptions
from rest_framework.request import Request

from helixweb.common.problems import TooLarge
from runtime.protocol.complaints import complaint

MessageT = TypeVar("MessageT", bound=BaseModel)
SHOWN = 80
# A report about a thousand nodes has a third of it.
MAX_MESSAGE_BYTES = 1_000_000
# What an engine wrote may hold it, and PostgreSQL keeps no text with it.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def read_message(kind: type[MessageT], request: Request) -> MessageT:
    """The request's JSON body as `kind`.

    Raises TooLarge, and DRF's ValidationError with a path per field.
    """
    if len(request.body) > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"The message has {len(request.body):,} bytes; at most {MAX_MESSAGE_BYTES:,} are read."
        )
    try:
        return kind.model_validate_json(_NUL.sub(rb"\1\\ufffd", request.body), strict=True)
    except ValidationError as error:
        problems: dict[str, list[str]] = {}
        for problem in error.errors(include_url=False, include_context=False):
            path = ".".join(str(part) for part in problem["loc"]) or "detail"
            text = complaint(problem)
            if problem["type"] != "missing" and path != "detail":
                text += f" (got {_shown(problem['input'])})"
            problems.setdefault(path, []).append(text)
        raise exceptions.ValidationError(problems) from error


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
