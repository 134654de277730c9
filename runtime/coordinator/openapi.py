"""What the HTTP face takes and answers, as OpenAPI 3.1; made of the models that read and write."""

from importlib import metadata
from typing import Any

from pydantic import TypeAdapter

from runtime.dialects.anthropic_parameters import CountTokensRequest, MessagesRequest
from runtime.dialects.responses_parameters import ResponsesRequest
from runtime.protocol.openai_answers import Answer
from runtime.protocol.openai_parameters import (
    ChatCompletionRequest,
    CompletionRequest,
    TokenizeRequest,
)

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_NAMES: Json = {"type": "array", "items": _TEXT}
_REASONS = {
    400: "The request cannot be answered as it is; the message says what to change.",
    401: "No API key, or one that is not known.",
    404: "That model is not served here.",
    413: "The body is too large.",
    429: "Too many requests wait; Retry-After says when to come again.",
    500: "A stage or the coordinator failed.",
    503: "No plan is deployed, or the first is not up yet; Retry-After says when to come again.",
}


_DESCRIBED = (
    ChatCompletionRequest,
    CompletionRequest,
    MessagesRequest,
    CountTokensRequest,
    ResponsesRequest,
    TokenizeRequest,
    Answer,
)


def openapi_document() -> Json:
    """The whole document; the same for every plan."""
    models: list[tuple[Any, Any, TypeAdapter[Any]]] = [
        (model, "validation", TypeAdapter(model)) for model in _DESCRIBED
    ]
    _, definitions = TypeAdapter.json_schemas(models, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "HelixWeb coordinator",
            "version": metadata.version("helixweb"),
            "description": "The APIs of OpenAI and Anthropic, as one cluster answers them.",
        },
        "security": [{"apiKey": []}],
        "paths": {
            **{
                path: {"post": _posted(request, summary, answer, error=error)}
                for path, request, summary, answer, error in _posts()
            },
            "/v1/models": {"get": _lookup("List the models", _object(object=_TEXT, data=_MODELS))},
            "/v1/models/{name}": {"get": _model()},
            "/health": {"get": _health()},
        },
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **definitions["$defs"],
                "Model": _MODEL,
                "Error": _ERROR,
                "AnthropicError": _ANTHROPIC_ERROR,
                "EmbeddingsRequest": _EMBEDDINGS_REQUEST,
                "Message": _MESSAGE,
                "Response": _RESPONSE,
            },
        },
    }


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


_MODEL = _object(
    id=_TEXT,
    object={"const": "model"},
    created=_COUNT,
    owned_by=_TEXT,
    root=_TEXT,
    max_model_len=_COUNT,
    emulated={"type": "boolean"},
)
_ERROR = _object(
    error=_object(
        message=_TEXT,
        type=_TEXT,
        param={"type": ["string", "null"]},
        code={"type": ["string", "null"]},
    )
)


_ANTHROPIC_ERROR = _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT))
_MESSAGE = _object(
    id=_TEXT,
    type={"const": "message"},
    role={"const": "assistant"},
    model=_TEXT,
    content={"type": "array", "items": _object(type=_TEXT)},
    stop_reason=_TEXT,
    stop_sequence={"type": ["string", "null"]},
    usage=_object(input_tokens=_COUNT, output_tokens=_COUNT),
)
_RESPONSE = _object(
    id=_TEXT,
    object={"const": "response"},
    status={"enum": ["completed", "incomplete"]},
    model=_TEXT,
    output={"type": "array", "items": _object(id=_TEXT, type=_TEXT)},
    usage=_object(input_tokens=_COUNT, output_tokens=_COUNT, total_tokens=_COUNT),
)
_EMBEDDINGS_REQUEST = _object(model=_TEXT, input={"type": ["string", "array"]})
_EMBEDDINGS = _object(model=_TEXT, data={"type": "array", "items": {"type": "object"}})
_TOKENS = _object(input_tokens=_COUNT)
_TOKEN_IDS = _object(count=_COUNT, max_model_len=_COUNT, tokens={"type": "array", "items": _COUNT})


def _reference(model: str) -> Json:
    return {"$ref": _REFERENCE.format(model=model)}


_EVENT = _object(data={**_TEXT, "description": "A chunk of the answer as JSON, or [DONE]."})
_MODELS: Json = {"type": "array", "items": _reference("Model")}


def _json(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(*statuses: int, error: str = "Error") -> Json:
    return {str(status): _json(_REASONS[status], _reference(error)) for status in statuses}


def _posts() -> list[tuple[str, str, str, Json, str]]:
    """Path, model of the body, summary, answer, and model of an error."""
    chat, counts = "Answer a chat", "Count the tokens"
    embeddings = _json("The embeddings.", _EMBEDDINGS)
    tokens, ids = _json("Their number.", _TOKENS), _json("Their number.", _TOKEN_IDS)
    ours, anthropics = "Error", "AnthropicError"
    return [
        ("/v1/chat/completions", "ChatCompletionRequest", chat, _streamed("Answer"), ours),
        ("/v1/completions", "CompletionRequest", "Continue a text", _streamed("Answer"), ours),
        ("/v1/responses", "ResponsesRequest", chat, _streamed("Response"), ours),
        ("/v1/messages", "MessagesRequest", chat, _streamed("Message"), anthropics),
        ("/v1/messages/count_tokens", "CountTokensRequest", counts, tokens, anthropics),
        (
            "/v1/embeddings",
            "EmbeddingsRequest",
            "Compute embeddings, where an instance has them",
            embeddings,
            ours,
        ),
        ("/tokenize", "TokenizeRequest", counts, ids, ours),
    ]


def _streamed(answer: str) -> Json:
    told = _json("The answer, or its chunks as server-sent events.", _reference(answer))
    told["content"]["text/event-stream"] = {"schema": _EVENT}
    return told


def _posted(request: str, summary: str, answer: Json, *, error: str) -> Json:
    return {
        "summary": summary,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _reference(request)}},
        },
        "responses": {"200": answer, **_refusals(400, 401, 404, 413, 429, 500, 503, error=error)},
    }


def _lookup(summary: str, schema: Json, *refusals: int) -> Json:
    found = {"200": _json("Found.", schema)}
    return {"summary": summary, "responses": {**found, **_refusals(401, *refusals)}}


def _model() -> Json:
    name = {"name": "name", "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
    return {**_lookup("One model", _reference("Model"), 404), "parameters": [name]}


def _health() -> Json:
    state = _object(
        status=_TEXT,
        generation=_COUNT,
        coming_generation=_COUNT,
        leaving_generation=_COUNT,
        missing_nodes=_NAMES,
        silent_nodes=_NAMES,
        lost_nodes={"type": "object", "additionalProperties": _TEXT},
        draining_nodes=_NAMES,
        requests_running=_COUNT,
        requests_waiting=_COUNT,
    )
    return {
        "summary": "Whether requests are answered",
        "security": [],
        "responses": {
            "200": _json("They are.", state),
            "503": _json("They are not; the body says what is missing.", state),
        },
    }
