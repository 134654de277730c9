"""Reads the control protocol's messages out of requests."""

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from rest_framework import exceptions
from rest_framework.request import Request

MessageT = TypeVar("MessageT", bound=BaseModel)
SHOWN = 80


def read_message(kind: type[MessageT], request: Request) -> MessageT:
    """The request's JSON body as `kind`. Raises DRF's ValidationError with a path per field."""
    try:
        return kind.model_validate_json(request.body)
    except ValidationError as error:
        problems: dict[str, list[str]] = {}
        for problem in error.errors(include_url=False, include_context=False):
            path = ".".join(str(part) for part in problem["loc"]) or "detail"
            text = problem["msg"]
            if problem["type"] != "missing" and path != "detail":
                text += f" (got {_shown(problem['input'])})"
            problems.setdefault(path, []).append(text)
        raise exceptions.ValidationError(problems) from error


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
