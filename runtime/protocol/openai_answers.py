"""What the coordinator answers: completions, their chunks, usage, and the `helix` extension.

Answers are made as these dictionaries, which the OpenAPI document describes. There is one shape for
both endpoints: a chat choice carries `message` or `delta`, a completion choice `text`. What there
is nothing of is left out, except `finish_reason`, which is null until the end.
"""

from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic reads no other on Python 3.11

IGNORED_HEADER = "X-HelixWeb-Ignored"  # names what a client gave and nothing depends on

FinishReason = Literal["stop", "length"]
ChoiceFinish = Literal["stop", "length", "tool_calls"]
AnswerKind = Literal["chat.completion", "chat.completion.chunk", "text_completion"]


@with_config(ConfigDict(extra="forbid"))
class _Answer(TypedDict):
    """Has no other keys than those that are declared."""


class Usage(_Answer):
    """Tokens of the prompt and of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class PassedStage(_Answer):
    """A stage of the request's pipeline; layers [first, end)."""

    node: str
    first: int
    end: int


class HelixExtension(_Answer):
    """Where and when the request ran; `queue_s` is part of `ttft_s`. Null without a token.

    `request` is the 16 hex digits that its trace is found by, if it is traced.
    """

    request: str
    pipeline: list[PassedStage]
    ttft_s: float | None
    queue_s: float


class TokenAlternative(_Answer):
    """A token's text and probability; `bytes` is null where the token is no whole characters."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TokenAlternative):
    """A token of the answer, with the most likely tokens in its place."""

    top_logprobs: list[TokenAlternative]


class ChatLogprobs(_Answer):
    """One entry per token of the message."""

    content: list[TokenLogprob]


class CompletionLogprobs(_Answer):
    """Parallel lists over the tokens of the text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class FunctionPart(_Answer):
    """A function's name and its arguments, JSON as text, or the next part of that text."""

    name: NotRequired[str]
    arguments: str


class ToolCallPart(_Answer):
    """A call of a tool; in a stream the first part has id, type and name, and all an index."""

    index: NotRequired[int]
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionPart


class AssistantMessage(_Answer, total=False):
    """What the assistant said, thought and called, or the next part of it."""

    role: Literal["assistant"]
    reasoning_content: str
    content: str
    tool_calls: list[ToolCallPart]


class Choice(_Answer):
    """One of the answers to a prompt, or the next part of it."""

    index: int
    message: NotRequired[AssistantMessage]
    delta: NotRequired[AssistantMessage]
    text: NotRequired[str]
    prompt_token_ids: NotRequired[list[int]]  # of a completion
    token_ids: NotRequired[list[int]]
    logprobs: NotRequired[ChatLogprobs | CompletionLogprobs]
    finish_reason: ChoiceFinish | None
    stop_reason: NotRequired[str]  # the stop string that ended it, as vLLM names it


class Answer(_Answer):
    """A whole answer, or one chunk of a stream."""

    id: str
    object: AnswerKind
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: NotRequired[Usage]
    prompt_token_ids: NotRequired[list[int]]  # of a chat
    helix: NotRequired[HelixExtension]
