"""What the coordinator answers: completions, their chunks, usage, and the `helix` extension.

One set of models for both endpoints: a chat choice carries `message` or `delta`, a completion
choice `text`. Unset fields are left out, except `finish_reason`, which is null until the end.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from runtime.protocol.request_trace import TraceStage

IGNORED_HEADER = "X-HelixWeb-Ignored"  # names what a client gave and nothing depends on

FinishReason = Literal["stop", "length"]
ChoiceFinish = Literal["stop", "length", "tool_calls"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Usage(_Answer):
    """Tokens of the prompt and of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class HelixExtension(_Answer):
    """Where and when the request ran; `queue_s` is part of `ttft_s`. Null without a token.

    `request` is the 16 hex digits that its trace is found by, if it is traced.
    """

    request: str
    pipeline: tuple[TraceStage, ...]
    ttft_s: float | None
    queue_s: float


class TokenAlternative(_Answer):
    """A token's text and probability; `bytes` is null where the token is no whole characters."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class TokenLogprob(TokenAlternative):
    """A token of the answer, with the most likely tokens in its place."""

    top_logprobs: tuple[TokenAlternative, ...]


class ChatLogprobs(_Answer):
    """One entry per token of the message."""

    content: tuple[TokenLogprob, ...]
    refusal: None = None


class CompletionLogprobs(_Answer):
    """Parallel lists over the tokens of the text."""

    tokens: tuple[str, ...]
    token_logprobs: tuple[float, ...]
    top_logprobs: tuple[dict[str, float], ...]
    text_offset: tuple[int, ...]


class FunctionPart(_Answer):
    """A function's name and its arguments, JSON as text, or the next part of that text."""

    name: str | None = None
    arguments: str


class ToolCallPart(_Answer):
    """A call of a tool; in a stream the first part has id, type and name, and all an index."""

    index: int | None = None
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionPart


class AssistantMessage(_Answer):
    """What the assistant said, thought and called, or the next part of it."""

    role: Literal["assistant"] | None = None
    reasoning_content: str | None = None
    content: str | None = None
    tool_calls: tuple[ToolCallPart, ...] | None = None


class Choice(_Answer):
    """One of the answers to a prompt, or the next part of it."""

    index: int = 0
    message: AssistantMessage | None = None
    delta: AssistantMessage | None = None
    text: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None  # of a completion
    token_ids: tuple[int, ...] | None = None
    logprobs: ChatLogprobs | CompletionLogprobs | None = None
    finish_reason: ChoiceFinish | None = None
    stop_reason: str | None = None  # the stop string that ended it, as vLLM names it

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: without what is unset."""
        body = self.model_dump(mode="json", exclude_none=True)
        body.setdefault("finish_reason", None)
        for told in body.get("logprobs", {}).get("content", ()):
            for token in (told, *told["top_logprobs"]):
                token.setdefault("bytes", None)
        return body


class Answer(_Answer):
    """A whole answer, or one chunk of a stream."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk", "text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[Choice, ...]
    usage: Usage | None = None
    prompt_token_ids: tuple[int, ...] | None = None  # of a chat
    helix: HelixExtension | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: without what is unset."""
        body = self.model_dump(mode="json", exclude_none=True, exclude={"choices"})
        body["choices"] = [choice.as_dict() for choice in self.choices]
        if self.helix is not None:
            body["helix"]["ttft_s"] = self.helix.ttft_s
        return body
