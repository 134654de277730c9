"""Requests and errors in the OpenAI dialect: a body is read, or refused with a reason.

The parameters and the answers have files of their own beside it.
"""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from runtime.protocol.complaints import complaint
from runtime.protocol.half_characters import half_character_in
from runtime.protocol.openai_parameters import (
    ChatCompletionRequest,
    ChatMessage,
    GenerationRequest,
)
from runtime.protocol.openai_tools import NamedTool, Strict

# Parameters of OpenAI that would be answered wrongly, with what to use instead.
_UNSUPPORTED = {
    "audio": "remove it",
    "function_call": "use 'tool_choice'",
    "functions": "use 'tools'",
    "top_logprobs": "use 'logprobs'",
    "web_search_options": "remove it",
}

# What a chat template always gets, beside special tokens.
_TEMPLATE_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt"})

_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")  # one key for each


# The HTTP status of errors by their code, where it is not 400.
_STATUSES = {
    "invalid_api_key": 401,
    "ip_not_authorized": 403,
    "model_not_found": 404,
    "no_such_endpoint": 404,
    "request_too_large": 413,
    "insufficient_quota": 429,
    "queue_full": 429,
    "rate_limit_exceeded": 429,
    "internal_error": 500,
    "bad_answer": 502,
    "instances_failed": 502,
    "stream_broken": 502,
    "not_ready": 503,
    "overloaded": 503,
    "stopping": 503,
    "too_slow": 504,
}
_TYPES = {401: "authentication_error", 403: "authentication_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer that is an OpenAI error object. `status` is the HTTP status, by default that of the
    `code`; `type_` by default that of the status."""

    def __init__(
        self,
        *,
        message: str,
        code: str | None,
        param: str | None = None,
        status: int | None = None,
        type_: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or _STATUSES.get(code or "", 400)
        self.message = message
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        self.type = type_ or _TYPES.get(self.status, usual)
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def rename(self, names: Mapping[str, str]) -> None:
        """Name the parameter as the client's API does: `names` are those by ours. An unknown one is
        named as the client did."""
        if self.code == "unknown_parameter":
            return
        if (theirs := names.get(self.param or "")) is not None:
            self.message = self.message.replace(f"'{self.param}'", f"'{theirs}'")
            self.param = theirs

    def body(self) -> dict[str, dict[str, str | None]]:
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def model_not_found(name: object, *, available: str | None) -> ApiError:
    """404 for a model that is not served; `available`: the one that is."""
    told = "none yet; deploy one" if available is None else repr(available)
    return ApiError(
        message=f"model {name!r} is not served here; available: {told}",
        param="model",
        code="model_not_found",
    )


RequestT = TypeVar("RequestT", bound=GenerationRequest)
BodyT = TypeVar("BodyT", bound=Strict)


def parse_request(kind: type[RequestT], body: bytes) -> RequestT:
    """JSON -> request. Raises ApiError 400 naming the parameter, its value and the remedy."""
    request = parse_body(kind, body)
    _refuse_contradictions(request)
    return request


def parse_body(kind: type[BodyT], body: bytes) -> BodyT:
    """JSON -> parameters, each right alone. Raises ApiError 400 as `parse_request` does."""
    try:
        return _parsed(kind, _read_json(body))
    except RecursionError as error:
        raise ApiError(
            message="the request body is nested too deeply; make it flatter", code="invalid_json"
        ) from error


def _parsed(kind: type[BodyT], raw: dict[str, object]) -> BodyT:
    for name, value in raw.items():
        if name not in kind.model_fields and value is not None:
            raise _unknown_parameter(kind, name)
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _refusal(raw, error) from error


def _refuse_contradictions(request: GenerationRequest) -> None:
    """Parameters that are right alone but not together. Raises ApiError 400."""
    if request.stream_options is not None and not request.stream:
        raise _contradiction(
            "stream_options",
            "'stream_options' is only allowed with \"stream\": true; set stream or remove "
            "stream_options",
        )
    choices = request.n or 1
    if request.best_of not in (None, 1, choices):
        raise _contradiction(
            "best_of",
            f"'best_of' is {request.best_of} and 'n' is {choices}; every choice is returned: give "
            "both the same value, or remove best_of",
        )
    wanted = request.response_format
    if wanted is not None and (wanted.type == "json_schema") != (wanted.json_schema is not None):
        if wanted.json_schema is None:
            raise _missing("response_format.json_schema")
        raise _contradiction(
            "response_format.json_schema",
            "'response_format.json_schema' belongs to the type \"json_schema\", the type is "
            f"{json.dumps(wanted.type)}; give both or neither",
        )
    for token in request.logit_bias or {}:
        if not _TOKEN_ID.fullmatch(token) or int(token) >= 2**31:
            raise _contradiction(
                "logit_bias",
                f"'logit_bias' has the key {_cut(json.dumps(token))}; its keys are token ids, e.g. "
                '{"50256": -100}',
            )
    if not isinstance(request, ChatCompletionRequest):
        return
    if request.top_logprobs and not request.logprobs:
        raise _contradiction(
            "top_logprobs",
            "'top_logprobs' is only allowed with \"logprobs\": true; set logprobs or remove "
            "top_logprobs",
        )
    limits = {request.max_tokens, request.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise _contradiction(
            "max_tokens",
            f"both 'max_tokens' ({request.max_tokens}) and 'max_completion_tokens' "
            f"({request.max_completion_tokens}) are given; they mean the same, keep one",
        )
    for name in request.chat_template_kwargs or ():
        if name in _TEMPLATE_VARIABLES or name.endswith("_token"):
            raise _contradiction(
                "chat_template_kwargs",
                f"'chat_template_kwargs' sets {_cut(name)!r}, which the server sets; remove it",
            )
    for index, message in enumerate(request.messages):
        _refuse_stray_fields(message, where=f"messages[{index}]")
    _refuse_tool_contradictions(request)


def _refuse_stray_fields(message: ChatMessage, *, where: str) -> None:
    """What a message of its role must have or cannot have. Raises ApiError 400."""
    if message.content is None and message.refusal is None and not message.tool_calls:
        raise _missing(f"{where}.content")
    if message.tool_calls and message.role != "assistant":
        raise _contradiction(
            f"{where}.tool_calls",
            f"'{where}.tool_calls' belongs to the role \"assistant\", the role is "
            f"{json.dumps(message.role)}; remove it",
        )
    if message.role == "tool" and message.tool_call_id is None:
        raise _missing(f"{where}.tool_call_id")
    if message.tool_call_id is not None and message.role != "tool":
        raise _contradiction(
            f"{where}.tool_call_id",
            f"'{where}.tool_call_id' belongs to the role \"tool\", the role is "
            f"{json.dumps(message.role)}; remove it",
        )


def _refuse_tool_contradictions(request: ChatCompletionRequest) -> None:
    names = [tool.function.name for tool in request.tools or ()]
    choice = request.tool_choice
    for name in names:
        if names.count(name) > 1:
            raise _contradiction(
                "tools", f"'tools' offers {name!r} more than once; give each function its own name"
            )
    if choice not in (None, "none", "auto") and not names:
        raise _contradiction(
            "tool_choice", "'tool_choice' is only allowed with 'tools'; offer tools or remove it"
        )
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise _contradiction(
            "tool_choice",
            f"'tool_choice' names {choice.function.name!r}, 'tools' offers {', '.join(names)}; "
            "name one of these",
        )
    wanted = request.response_format
    if request.usable_tools and wanted is not None and wanted.type != "text":
        raise _contradiction(
            "response_format",
            f"'response_format' of type {json.dumps(wanted.type)} leaves no room for a call of "
            '\'tools\'; remove one of them or set "tool_choice": "none"',
        )


def _contradiction(param: str, message: str) -> ApiError:
    return ApiError(message=message, param=param, code="invalid_value")


def _missing(param: str) -> ApiError:
    return ApiError(
        message=f"required parameter {param!r} is missing; add it",
        param=param,
        code="missing_required_parameter",
    )


def _read_json(body: bytes) -> dict[str, object]:
    """The object in `body`, all its strings encodable. Raises ApiError 400."""
    try:
        text = body.decode()
        raw = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ApiError(
            message=f"the request body is not JSON: {error}", code="invalid_json"
        ) from error
    except ValueError as error:  # of Python's, with a remedy for its programs
        raise ApiError(
            message="the request body has a number of thousands of digits; write it shorter",
            code="invalid_json",
        ) from error
    if not isinstance(raw, dict):
        raise ApiError(
            message=f"the request body is {_cut(json.dumps(raw))}; send a JSON object",
            code="invalid_type",
        )
    if half := half_character_in(raw, text=text):
        raise ApiError(
            message=f"the request body holds {half!r}, half of a surrogate pair; send whole "
            "characters",
            code="invalid_json",
        )
    return raw


def _unknown_parameter(kind: type[BaseModel], name: str) -> ApiError:
    if name in _UNSUPPORTED:
        message = f"parameter {name!r} is not supported by this server; {_UNSUPPORTED[name]}"
    else:
        near = difflib.get_close_matches(_cut(name), kind.model_fields, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "remove it"
        message = f"unknown parameter {_cut(name)!r}; {remedy}"
    return ApiError(message=message, param=_cut(name), code="unknown_parameter")


def _refusal(raw: dict[str, object], error: ValidationError) -> ApiError:
    """The first complaint, as one sentence. Of a union's complaints those are given that the type
    of the value leads to, unless one says that something is not supported."""
    problems = error.errors(include_url=False, include_context=False)
    unsupported = [problem for problem in problems if problem["type"].startswith("unsupported_")]
    problems = unsupported[:1] or problems
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    problems, place, value = _narrowed(raw, unknown[:1] or problems)
    first = problems[0]
    is_missing = first["type"] == "missing"
    location = first["loc"] if is_missing else place
    param = _cut(_parameter_path(raw, location, is_missing=is_missing))
    if unknown:
        message = f"unknown parameter {param!r}; remove it"
        return ApiError(message=message, param=param, code="unknown_parameter")
    if is_missing:
        return _missing(param)
    expected = "; or ".join(dict.fromkeys(map(complaint, problems)))
    given = _cut(json.dumps(value, ensure_ascii=False, default=str))
    return ApiError(
        message=f"parameter {param!r} is {given}: {expected[0].lower()}{expected[1:]}",
        param=param,
        code="invalid_type" if first["type"].endswith("_type") else "invalid_value",
    )


def _narrowed(
    raw: object, problems: list[ErrorDetails]
) -> tuple[list[ErrorDetails], tuple[int | str, ...], object]:
    """The complaints about the value of the first one, its location and the value.

    Of the branches of a union those are left that take values of its type, if any does.
    """
    value: Any = raw
    depth = 0
    while depth < len(problems[0]["loc"]):
        part: Any = problems[0]["loc"][depth]
        is_index = isinstance(value, list) and isinstance(part, int)
        if is_index or (isinstance(value, dict) and part in value):
            value = value[part]
        else:  # pydantic's name of a branch, or what is missing
            taken = [
                one for one in problems if len(one["loc"]) > depth + 1 or not _is_mismatch(one)
            ]
            problems = taken or problems
            part = problems[0]["loc"][depth]
            if any(one["loc"][depth : depth + 1] != (part,) for one in problems):
                break
        problems = [one for one in problems if one["loc"][depth : depth + 1] == (part,)]
        depth += 1
    return problems, problems[0]["loc"][:depth], value


def _is_mismatch(problem: ErrorDetails) -> bool:
    """Whether the type takes no such values at all."""
    return problem["type"].endswith(("_type", "literal_error"))


def _cut(text: str) -> str:
    """What an error repeats of what a client sent."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def _parameter_path(raw: object, location: tuple[int | str, ...], *, is_missing: bool) -> str:
    """`messages[0].content`: the location without pydantic's names of union branches. Only the last
    name of what `is_missing` is not in `raw`."""
    path = ""
    for number, part in enumerate(location, start=1):
        if isinstance(raw, dict) and isinstance(part, str):
            if part not in raw and not (is_missing and number == len(location)):
                continue
            path += f".{part}"
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int):
            path += f"[{part}]"
            raw = raw[part]
    return path.removeprefix(".")
