"""OpenAI's Responses API without storage, as a translation to chat completions and back."""

from collections.abc import Iterable, Iterator
from typing import Any

from runtime.dialects.chat_answer import Block, Change, ChatAnswer, Closed, Opened
from runtime.dialects.responses_parameters import (
    ChosenFunction,
    InputCall,
    InputMessage,
    InputReasoning,
    InputResult,
    ResponsesRequest,
)
from runtime.protocol.openai import ApiError, parse_body
from runtime.protocol.openai_tools import Strict, ignored_in

Json = dict[str, Any]

_SAME = {"model", "stream", "temperature", "top_p", "parallel_tool_calls"}  # as in chats
_REPEATED = {"instructions", "max_output_tokens", "model", "temperature", "top_p"}
_THEIRS = {"max_tokens": "max_output_tokens", "messages": "input", "response_format": "text.format"}
_UNUSED = {"reasoning_effort": "reasoning.effort"}
_STORED = ("previous_response_id", "conversation", "prompt")
_PREFIXES = {"reasoning": "rs", "text": "msg", "call": "fc"}
_EVENT_NAMES = {
    "reasoning": "reasoning_text",
    "text": "output_text",
    "call": "function_call_arguments",
}


class Responses:
    """Translates OpenAI's Responses API; `Translated` makes one for each request.

    One request to /v1/responses.
    """

    target = "/v1/chat/completions"

    def __init__(self) -> None:
        self._ignored: set[str] = set()
        self._repeated: Json = {}  # of the request, in the answer
        self._answer = ChatAnswer()
        self._events = 0
        self._has_begun = False

    def ignored(self, by_target: Iterable[str]) -> set[str]:
        return self._ignored | {_UNUSED[name] for name in by_target if name in _UNUSED}

    def refusal(self, error: ApiError) -> Json:
        error.rename(_THEIRS)
        return error.body()

    def request(self, body: bytes) -> Json:
        try:
            request = parse_body(ResponsesRequest, body)
        except ApiError as error:
            if error.param in _STORED:
                error.message = (
                    f"{error.param!r} needs stored answers, and nothing is stored here; send the "
                    "whole conversation in 'input'"
                )
            raise
        self._ignored, self._repeated = ignored_in(request), _repeated(request)
        chat = {
            **request.model_dump(include=_SAME),
            "messages": _messages_of(request),
            "max_tokens": request.max_output_tokens,
            "stream_options": {"include_usage": True} if request.stream else None,
            "tools": [tool.as_function for tool in request.tools or ()] or None,
            "tool_choice": _tool_choice(request),
            "response_format": _response_format(request),
            "reasoning_effort": request.reasoning.effort if request.reasoning else None,
        }
        return {name: value for name, value in chat.items() if value is not None}

    def whole(self, answer: Json) -> Json:
        for _ in (*self._answer.read(answer), *self._answer.end()):
            pass
        return self._response(self._status())

    def part(self, chunk: Json) -> Iterator[Json]:
        changes = [*self._answer.read(chunk)]
        yield from self._begin()
        yield from self._told(changes)

    def end(self) -> Iterator[Json]:
        yield from self._told(self._answer.end())
        status = self._status()
        yield self._event(f"response.{status}", response=self._response(status))

    def broken(self, error: ApiError) -> Iterator[Json]:
        yield from self._begin()
        failure = {"code": error.code or error.type, "message": error.message}
        response = {**self._response("failed"), "error": failure}
        yield self._event("response.failed", response=response)

    def _begin(self) -> Iterator[Json]:
        if not self._has_begun:
            self._has_begun = True
            for name in ("created", "in_progress"):
                yield self._event(f"response.{name}", response=self._response("in_progress"))

    def _event(self, kind: str, **fields: Any) -> Json:
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **fields}

    def _told(self, changes: Iterable[Change]) -> Iterator[Json]:
        for change in changes:
            block, item_id = change.block, self._item_id(change.block)
            place: Json = {"output_index": block.index, "item_id": item_id}
            is_call = block.kind == "call"
            if not is_call:
                place["content_index"] = 0
            logprobs: Json = {"logprobs": []} if block.kind == "text" else {}
            name = f"response.{_EVENT_NAMES[block.kind]}"
            if isinstance(change, Opened):
                item = self._item(block, "in_progress")
                yield self._event("response.output_item.added", output_index=block.index, item=item)
                if not is_call:
                    part = _content(block, "")
                    yield self._event("response.content_part.added", **place, part=part)
            elif isinstance(change, Closed):
                if is_call:
                    whole = {"name": block.name, "arguments": block.text}
                    yield self._event(f"{name}.done", **place, **whole)
                else:
                    part = _content(block, block.text)
                    yield self._event(f"{name}.done", **place, text=block.text, **logprobs)
                    yield self._event("response.content_part.done", **place, part=part)
                item = self._item(block, self._status())
                yield self._event("response.output_item.done", output_index=block.index, item=item)
            else:
                yield self._event(f"{name}.delta", **place, delta=change.text, **logprobs)

    def _item_id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self._answer.token}_{block.index}"

    def _item(self, block: Block, status: str) -> Json:
        item: Json = {"id": self._item_id(block), "status": status}
        is_empty = status == "in_progress"
        content = [] if is_empty else [_content(block, block.text)]
        if block.kind == "reasoning":
            return {**item, "type": "reasoning", "summary": [], "content": content}
        if block.kind == "text":
            return {**item, "type": "message", "role": "assistant", "content": content}
        arguments = "" if is_empty else block.text
        call = {"call_id": block.call_id, "name": block.name, "arguments": arguments}
        return {**item, "type": "function_call", **call}

    def _status(self) -> str:
        is_cut = self._answer.finish_reason in ("length", "content_filter")
        return "incomplete" if is_cut else "completed"

    def _response(self, status: str) -> Json:
        answer = self._answer
        is_over = status in ("completed", "incomplete")
        cut_by = "content_filter" if answer.finish_reason == "content_filter" else None
        return {
            **self._repeated,
            "id": f"resp_{answer.token}",
            "object": "response",
            "created_at": answer.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": cut_by or "max_output_tokens"}
            if status == "incomplete"
            else None,
            "output": [
                self._item(block, status if block is answer.blocks[-1] else "completed")
                for block in answer.blocks
            ]
            if is_over
            else [],
            "usage": self._usage() if is_over else None,
        }

    def _usage(self) -> Json:
        answer = self._answer
        return {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + answer.output_tokens,
        }


def _content(block: Block, text: str) -> Json:
    """The one part of a message or of thoughts."""
    if block.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _messages_of(request: ResponsesRequest) -> list[Json]:
    """The conversation; what the assistant thought, said and called in one turn is one message."""
    messages: list[Json] = []
    if request.instructions is not None:
        messages.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        return [*messages, {"role": "user", "content": request.input}]
    thoughts: Json = {}
    for item in request.input:
        if isinstance(item, InputReasoning):
            thoughts = {"reasoning_content": "".join(part.text for part in item.content or ())}
            continue
        message = _message_of(item)
        last = messages[-1] if messages else {"role": "none"}
        if last["role"] == message["role"] == "system":  # templates take one
            last["content"] += "\n\n" + message["content"]
        elif isinstance(item, InputCall) and last["role"] == "assistant" and not thoughts:
            last["tool_calls"] = last.get("tool_calls", []) + message["tool_calls"]
        else:
            is_said = message["role"] == "assistant"
            messages.append({**message, **thoughts} if is_said else message)
        thoughts = {}
    return messages


def _message_of(item: InputMessage | InputCall | InputResult) -> Json:
    if isinstance(item, InputCall):
        function = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}
    content = item.output if isinstance(item, InputResult) else item.content
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    if isinstance(item, InputResult):
        return {"role": "tool", "tool_call_id": item.call_id, "content": text}
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": text}


def _tool_choice(request: ResponsesRequest) -> object:
    choice = request.tool_choice
    if isinstance(choice, ChosenFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _response_format(request: ResponsesRequest) -> Json | None:
    wanted = request.text.format if request.text else None
    if wanted is None or wanted.type != "json_schema":
        return None if wanted is None else {"type": wanted.type}
    if wanted.schema_ is None:
        raise ApiError(
            message="required parameter 'text.format.schema' is missing; add it",
            param="text.format.schema",
            code="missing_required_parameter",
        )
    schema = {"name": wanted.name or "answer", "schema": wanted.schema_}
    return {"type": "json_schema", "json_schema": schema}


def _repeated(request: ResponsesRequest) -> Json:
    """What the answer says of the request."""
    reasoning, text = request.reasoning, request.text
    choice = request.tool_choice or "auto"
    return {
        **request.model_dump(include=_REPEATED),
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "store": False,
        "text": {"format": _dumped(text.format) if text and text.format else {"type": "text"}},
        "tool_choice": _dumped(choice) if isinstance(choice, ChosenFunction) else choice,
        "tools": [_dumped(tool) for tool in request.tools or ()],
        "truncation": "disabled",
    }


def _dumped(told: Strict) -> Json:
    """What the client gave, as the answer repeats it."""
    return told.model_dump(by_alias=True, exclude_none=True)
