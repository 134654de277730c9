"""The OpenAI dialect the coordinator speaks: requests and errors; answers are beside it.

Strict on purpose: a parameter that would be ignored is refused by name, so that nobody believes it
worked. Extensions: `top_k`, `min_p`, `repetition_penalty`, `stop_token_ids`, `return_token_ids`,
`priority` (0 goes first; more steps back behind all who ask for less) and `helix` in answers.
"""

import json
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from runtime.protocol.complaints import complaint
from runtime.protocol.openai_tools import (
    MAX_TOOLS,
    NamedTool,
    Strict,
    Tool,
    ToolCall,
    ToolChoice,
    forced_schema,
)

MAX_STOP_STRINGS = 4
MAX_STOP_TOKEN_IDS = 64
MAX_CHOICES = 8
MAX_BIASES = 1024
MAX_PARTS = 1024  # of one message's content
# OpenAI's own parameters that this server does not have yet.
# fmt: off
_UNSUPPORTED = frozenset({
    "audio", "best_of", "echo", "function_call", "functions", "metadata", "modalities",
    "parallel_tool_calls", "prediction", "reasoning_effort", "service_tier", "store", "suffix",
    "top_logprobs", "verbosity", "web_search_options",
})
# fmt: on

_TOKEN_ID = re.compile("[0-9]{1,10}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
# A body may hold a million of them, and every complaint costs more than what it complains of.
TokenIds = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]


class ApiError(Exception):
    """An answer that is an OpenAI error object; `status` is the HTTP status."""

    def __init__(
        self,
        *,
        status: int,
        message: str,
        code: str | None,
        param: str | None = None,
        type_: str = "invalid_request_error",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type_
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, dict[str, str | None]]:
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class StreamOptions(Strict):
    include_usage: bool = False


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """`tool_calls` belong to the assistant, who may then say nothing else, and `tool_call_id` to
    the role "tool", which answers one of them."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS)] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = Field(default=None, min_length=1)
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class JsonSchema(Strict):
    """`schema` is what the answer follows; `strict` changes nothing, it always does."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """`json_schema` is needed with the type of that name, and with it only."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


def _not_too_many(biases: object) -> object:
    """Counted before each is looked at."""
    if isinstance(biases, dict) and len(biases) > MAX_BIASES:
        raise PydanticCustomError(
            "too_long",
            "Dictionary should have at most {most} items, not {count}",
            {"most": MAX_BIASES, "count": len(biases)},
        )
    return biases


TokenBias = Annotated[float, Field(ge=-100, le=100)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class GenerationRequest(Strict):
    """What both endpoints share."""

    model: str
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0, lt=2**31)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    logit_bias: Annotated[dict[str, TokenBias], BeforeValidator(_not_too_many)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    response_format: ResponseFormat | None = None
    return_token_ids: bool = False
    priority: int = Field(default=0, ge=0, le=100)

    @property
    def token_limit(self) -> int | None:
        """The most output tokens the client allows; None when it did not say."""
        return self.max_tokens

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def alternatives(self) -> int | None:
        """How many likely tokens are told with each token; None: no logprobs at all."""
        return None

    @property
    def grammar(self) -> str:
        """The JSON schema the answer must follow; empty: none."""
        wanted = self.response_format
        if wanted is None or wanted.type == "text":
            return ""
        schema = {"type": "object"} if wanted.json_schema is None else wanted.json_schema.schema_
        return json.dumps(schema)

    @property
    def grammar_param(self) -> str:
        """The parameter that `grammar` comes from."""
        return "response_format"


class ChatCompletionRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tools: list[Tool] | None = Field(default=None, min_length=1, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = None

    @property
    def usable_tools(self) -> list[Tool]:
        """The tools the model is told of."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def forced_call(self) -> str:
        """The JSON schema of the call that must be made; empty when none must."""
        return forced_schema(self.tools or [], self.tool_choice or "auto")

    @property
    def grammar(self) -> str:
        return self.forced_call or super().grammar

    @property
    def grammar_param(self) -> str:
        return "tool_choice" if self.forced_call else super().grammar_param

    @property
    def alternatives(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. One prompt: text or token ids, bare or as a list of one."""

    logprobs: int | None = Field(default=None, ge=0, le=5)
    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=1)]
        | Annotated[
            list[TokenIds],
            Field(min_length=1, max_length=1),
        ]
    )

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    @property
    def single_prompt(self) -> str | list[int]:
        """The prompt as text or token ids."""
        if isinstance(self.prompt, str):
            return self.prompt
        head = self.prompt[0]
        if isinstance(head, int):
            return [token for token in self.prompt if isinstance(token, int)]
        return head


RequestT = TypeVar("RequestT", bound=GenerationRequest)


def parse_request(kind: type[RequestT], body: bytes) -> RequestT:
    """JSON -> request. Raises ApiError 400 naming the parameter, its value and the remedy."""
    try:
        return _parsed(kind, _read_json(body))
    except RecursionError as error:
        raise ApiError(
            status=400,
            message="the request body is nested too deeply; make it flatter",
            code="invalid_json",
        ) from error


def _parsed(kind: type[RequestT], raw: dict[str, object]) -> RequestT:
    strange = next((name for name in raw if name not in kind.model_fields), None)
    if strange is not None:
        raise _unknown_parameter(kind, strange)
    try:
        request = kind.model_validate(raw)
    except ValidationError as error:
        raise _refusal(raw, error) from error
    _refuse_contradictions(request)
    return request


def _refuse_contradictions(request: GenerationRequest) -> None:
    """Parameters that are right alone but not together. Raises ApiError 400."""
    if request.stream_options is not None and not request.stream:
        raise _contradiction(
            "stream_options",
            "'stream_options' is only allowed with \"stream\": true; set stream or remove "
            "stream_options",
        )
    wanted = request.response_format
    if wanted is not None and (wanted.type == "json_schema") != (wanted.json_schema is not None):
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
    if request.top_logprobs is not None and not request.logprobs:
        raise _contradiction(
            "top_logprobs",
            "'top_logprobs' is only allowed with \"logprobs\": true; set logprobs or remove "
            "top_logprobs",
        )
    if None not in (request.max_tokens, request.max_completion_tokens):
        raise _contradiction(
            "max_tokens",
            f"both 'max_tokens' ({request.max_tokens}) and 'max_completion_tokens' "
            f"({request.max_completion_tokens}) are given; they mean the same, keep one",
        )
    for index, message in enumerate(request.messages):
        _refuse_stray_fields(message, where=f"messages[{index}]")
    _refuse_tool_contradictions(request)


def _refuse_stray_fields(message: ChatMessage, *, where: str) -> None:
    """What a message of its role must have or cannot have. Raises ApiError 400."""
    if message.content is None and not message.tool_calls:
        raise ApiError(
            status=400,
            message=f"required parameter '{where}.content' is missing; add it",
            param=f"{where}.content",
            code="missing_required_parameter",
        )
    if message.tool_calls and message.role != "assistant":
        raise _contradiction(
            f"{where}.tool_calls",
            f"'{where}.tool_calls' belongs to the role \"assistant\", the role is "
            f"{json.dumps(message.role)}; remove it",
        )
    if (message.tool_call_id is not None) != (message.role == "tool"):
        raise _contradiction(
            f"{where}.tool_call_id",
            f"'{where}.tool_call_id' belongs to the role \"tool\", the role is "
            f"{json.dumps(message.role)}; give both or neither",
        )


def _refuse_tool_contradictions(request: ChatCompletionRequest) -> None:
    names = [tool.function.name for tool in request.tools or ()]
    choice = request.tool_choice
    for name in names:
        if names.count(name) > 1:
            raise _contradiction(
                "tools", f"'tools' offers {name!r} more than once; give each function its own name"
            )
    if choice not in (None, "none") and not names:
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
    return ApiError(status=400, message=message, param=param, code="invalid_value")


def _read_json(body: bytes) -> dict[str, object]:
    """The object in `body`, all its strings encodable. Raises ApiError 400."""
    try:
        text = body.decode()
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError(
            status=400, message=f"the request body is not JSON: {error}", code="invalid_json"
        ) from error
    if not isinstance(raw, dict):
        raise ApiError(
            status=400,
            message=f"the request body is a JSON {type(raw).__name__}; send an object",
            code="invalid_type",
        )
    if _SURROGATE.search(text):
        try:
            json.dumps(raw, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.start + 1]
            raise ApiError(
                status=400,
                message=f"the request body holds {half!r}, half of a surrogate pair; send whole "
                "characters",
                code="invalid_json",
            ) from error
    return raw


def _unknown_parameter(kind: type[BaseModel], name: str) -> ApiError:
    if name in _UNSUPPORTED:
        message = f"parameter {name!r} is not supported by this server; remove it"
    else:
        supported = ", ".join(sorted(kind.model_fields))
        message = f"unknown parameter {_cut(name)!r}; remove it (supported: {supported})"
    return ApiError(status=400, message=message, param=_cut(name), code="unknown_parameter")


def _refusal(raw: dict[str, object], error: ValidationError) -> ApiError:
    """The first complaint, as one sentence. Of a union's complaints all are given."""
    problems = error.errors(include_url=False, include_context=False)
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    first = (unknown or problems)[0]
    param = _cut(_parameter_path(raw, first["loc"]))
    if unknown:
        message = f"unknown parameter {param!r}; remove it"
        return ApiError(status=400, message=message, param=param, code="unknown_parameter")
    if first["type"] == "missing":
        return ApiError(
            status=400,
            message=f"required parameter {param!r} is missing; add it",
            param=param,
            code="missing_required_parameter",
        )
    top = first["loc"][0]
    expected = "; or ".join(
        dict.fromkeys(complaint(problem) for problem in problems if problem["loc"][0] == top)
    )
    given = _cut(json.dumps(first["input"], ensure_ascii=False, default=str))
    return ApiError(
        status=400,
        message=f"parameter {param!r} is {given}: {expected[0].lower()}{expected[1:]}",
        param=param,
        code="invalid_type" if first["type"].endswith("_type") else "invalid_value",
    )


def _cut(text: str) -> str:
    """What an error repeats of what a client sent."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def _parameter_path(raw: object, location: tuple[int | str, ...]) -> str:
    """`messages[0].content`: the location without pydantic's names of union branches."""
    path = ""
    for part in location:
        if isinstance(raw, dict) and isinstance(part, str):
            path += f".{part}"
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int):
            path += f"[{part}]"
            raw = raw[part]
    return path.removeprefix(".")
