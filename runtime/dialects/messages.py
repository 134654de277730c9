"""Anthropic's Messages API, as a translation to chat completions and back."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from runtime.dialects.anthropic_parameters import (
    AnthropicMessage,
    AnthropicPrompt,
    CountTokensRequest,
    MessagesRequest,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from runtime.dialects.chat_answer import Block, BlockKind, Change, ChatAnswer, Closed, Opened
from runtime.protocol.openai import ApiError, parse_body
from runtime.protocol.openai_tools import ignored_in

Json = dict[str, Any]

_SAME = {"max_tokens", "temperature", "top_k", "top_p", "stream"}  # mean and are called the same
_THEIRS = {"response_format": "output_config.format"}
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
# A block as it opens, the type of its deltas, and the field in which its text stands.
_BLOCKS: dict[BlockKind, tuple[Json, str, str]] = {
    "reasoning": (
        {"type": "thinking", "thinking": "", "signature": ""},
        "thinking_delta",
        "thinking",
    ),
    "text": ({"type": "text", "text": ""}, "text_delta", "text"),
    "call": ({"type": "tool_use", "input": {}}, "input_json_delta", "partial_json"),
}
_ROLES = {  # of blocks that only one side can say
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
    "tool_result": "user",
}
_EFFORTS = {"xhigh": "high", "max": "high"}  # the rest is named as chat templates name it


class _Anthropic:
    """What both endpoints share."""

    target: str
    _prompt: AnthropicPrompt | None = None

    def ignored(self, by_target: Iterable[str]) -> set[str]:
        prompt, unused = self._prompt, set(by_target)
        if prompt is None:
            return set()
        named = ignored_in(prompt)
        if prompt.thinking is not None and "chat_template_kwargs" in unused:
            named.add("thinking")
        if "reasoning_effort" in unused:
            named.add("output_config.effort")
        return named

    def refusal(self, error: ApiError) -> Json:
        usual = "invalid_request_error" if error.status < 500 else "api_error"
        kind = _ERROR_TYPES.get(error.status, usual)
        error.rename(_THEIRS)
        return {"type": "error", "error": {"type": kind, "message": error.message}}

    def part(self, chunk: Json) -> Iterator[Json]:
        yield from ()

    def end(self) -> Iterator[Json]:
        yield from ()

    def broken(self, error: ApiError) -> Iterator[Json]:
        yield {"type": "error", "error": {"type": "api_error", "message": error.message}}


class CountTokens(_Anthropic):
    """One request to /v1/messages/count_tokens."""

    target = "/tokenize"

    def request(self, body: bytes) -> Json:
        self._prompt = prompt = parse_body(CountTokensRequest, body)
        return _prompt_of(prompt)

    def whole(self, answer: Json) -> Json:
        return {"input_tokens": len(answer["tokens"])}


class Messages(_Anthropic):
    """Translates Anthropic's Messages API; `Translated` makes one for each request.

    One request to /v1/messages.
    """

    target = "/v1/chat/completions"

    def __init__(self) -> None:
        self._answer = ChatAnswer()
        self._thinks = False
        self._index = -1  # of the last block that was told, in a stream
        self._has_begun = False

    def request(self, body: bytes) -> Json:
        self._prompt = request = parse_body(MessagesRequest, body)
        self._thinks = request.thinks
        choice, config = request.tool_choice, request.output_config
        chat = {
            **_prompt_of(request),
            **request.model_dump(include=_SAME),
            "stop": request.stop_sequences,
            "stream_options": {"include_usage": True} if request.stream else None,
            "tool_choice": _tool_choice(request),
        }
        if choice is not None and choice.disable_parallel_tool_use:
            chat["parallel_tool_calls"] = False
        if config is not None and config.effort is not None:
            chat["reasoning_effort"] = _EFFORTS.get(config.effort, config.effort)
        if config is not None and config.format is not None:
            chat["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": config.format.schema_},
            }
        return {name: value for name, value in chat.items() if value is not None}

    def whole(self, answer: Json) -> Json:
        for _ in (*self._answer.read(answer), *self._answer.end()):
            pass
        content = [_whole_block(block) for block in self._answer.blocks if self._is_told(block)]
        return {**self._message(), "content": content, **self._stopped(), "usage": self._usage()}

    def part(self, chunk: Json) -> Iterator[Json]:
        changes = [*self._answer.read(chunk)]
        if not self._has_begun:
            self._has_begun = True
            unknown = {"stop_reason": None, "stop_sequence": None, "usage": self._usage()}
            yield {
                "type": "message_start",
                "message": {**self._message(), "content": [], **unknown},
            }
        yield from self._told(changes)

    def end(self) -> Iterator[Json]:
        yield from self._told(self._answer.end())
        yield {"type": "message_delta", "delta": self._stopped(), "usage": self._usage()}
        yield {"type": "message_stop"}

    def _told(self, changes: Iterable[Change]) -> Iterator[Json]:
        for change in changes:
            if not self._is_told(change.block):
                continue
            if isinstance(change, Opened):
                self._index += 1
                event = {"type": "content_block_start", "content_block": _opened(change.block)}
            elif isinstance(change, Closed):
                event = {"type": "content_block_stop"}
            else:
                event = {"type": "content_block_delta", "delta": _delta(change.block, change.text)}
            yield {**event, "index": self._index}

    def _is_told(self, block: Block) -> bool:
        return self._thinks or block.kind != "reasoning"

    def _message(self) -> Json:
        answer = self._answer
        return {
            "id": f"msg_{answer.token}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
        }

    def _stopped(self) -> Json:
        answer = self._answer
        stopped_by = answer.stop_string if answer.finish_reason == "stop" else None
        usual = "end_turn" if stopped_by is None else "stop_sequence"
        reason = _STOP_REASONS.get(answer.finish_reason or "", usual)
        return {"stop_reason": reason, "stop_sequence": stopped_by}

    def _usage(self) -> Json:
        answer = self._answer
        return {
            "input_tokens": answer.prompt_tokens - answer.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": answer.cached_tokens,
            "output_tokens": answer.output_tokens,
        }


def _prompt_of(prompt: AnthropicPrompt) -> Json:
    """Model, messages and tools, and whether to think. Raises ApiError."""
    if prompt.messages[-1].role == "assistant":
        raise ApiError(
            message="the last message is the assistant's, and an answer that goes on with given "
            "words is not supported; end with a message of the user",
            param="messages",
            code="unsupported_value",
        )
    messages: list[Json] = []
    if prompt.system is not None:
        system = prompt.system
        text = system if isinstance(system, str) else "\n".join(part.text for part in system)
        messages.append({"role": "system", "content": text})
    for index, message in enumerate(prompt.messages):
        _require_own_blocks(message, where=f"messages[{index}]")
        messages += _turn(message)
    variables = dict.fromkeys(("enable_thinking", "thinking"), prompt.thinks)
    chat = {"model": prompt.model, "messages": messages, "chat_template_kwargs": variables}
    if prompt.usable_tools:
        chat["tools"] = [tool.as_function for tool in prompt.usable_tools]
    return chat


def _require_own_blocks(message: AnthropicMessage, *, where: str) -> None:
    """Raises ApiError for a block of the other role."""
    for number, block in enumerate(() if isinstance(message.content, str) else message.content):
        role = _ROLES.get(block.type, message.role)
        if role != message.role:
            param = f"{where}.content[{number}]"
            raise ApiError(
                message=f"{param!r} is a block of type {block.type!r} in a message of the "
                f"{message.role}; such blocks belong to messages of the {role}",
                param=param,
                code="invalid_value",
            )


def _turn(message: AnthropicMessage) -> Iterator[Json]:
    """The chat messages of one message: results of tools have messages of their own."""
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    texts: list[str] = []
    said: Json = {}
    calls: list[Json] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            content = block.content
            text = content if isinstance(content, str) else "".join(part.text for part in content)
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}
        elif isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input)}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            said["reasoning_content"] = said.get("reasoning_content", "") + block.thinking
    if calls:
        said["tool_calls"] = calls
    if texts or said or message.role == "assistant":
        yield {"role": message.role, "content": "".join(texts), **said}


def _tool_choice(request: MessagesRequest) -> object:
    choice = request.tool_choice
    if choice is None or choice.type == "none":  # then the prompt has no tools
        return None
    if choice.type != "tool":
        return "required" if choice.type == "any" else "auto"
    if choice.name is None:
        raise ApiError(
            message="required parameter 'tool_choice.name' is missing; name the tool",
            param="tool_choice.name",
            code="missing_required_parameter",
        )
    return {"type": "function", "function": {"name": choice.name}}


def _opened(block: Block) -> Json:
    call = {"id": block.call_id, "name": block.name} if block.kind == "call" else {}
    return {**_BLOCKS[block.kind][0], **call}


def _delta(block: Block, text: str) -> Json:
    _, kind, field = _BLOCKS[block.kind]
    return {"type": kind, field: text}


def _whole_block(block: Block) -> Json:
    """A call whose arguments are no JSON object, as where the answer was cut, is given as text."""
    if block.kind != "call":
        return {**_opened(block), _BLOCKS[block.kind][2]: block.text}
    try:
        arguments = json.loads(block.text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return {"type": "text", "text": f"{block.name}: {block.text}"}
    return {**_opened(block), "input": arguments}
