"""The parameters of Anthropic's Messages API: which are read, ignored or refused."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from runtime.protocol.openai_parameters import (
    MAX_PARTS,
    MAX_STOP_STRINGS,
    StopString,
    Temperature,
    TopK,
    TopP,
)
from runtime.protocol.openai_tools import MAX_TOOLS, FunctionName, Ignored, Strict, only

Json = dict[str, Any]


class TextBlock(Strict):
    """Text that the user or the assistant said."""

    type: Literal["text"]
    text: str
    cache_control: Ignored = None
    citations: Ignored = None


class ThinkingBlock(Strict):
    """What the assistant thought before; the chat template gets it."""

    type: Literal["thinking"]
    thinking: str
    signature: Ignored = None


class RedactedThinkingBlock(Strict):
    """Thoughts that Anthropic encrypted: accepted and left out."""

    type: Literal["redacted_thinking"]
    data: Ignored = None


class ToolUseBlock(Strict):
    """A call that the assistant made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: Json
    cache_control: Ignored = None
    caller: Ignored = None


ReadText = Annotated[TextBlock, only("text", what="Blocks")]


class ToolResultBlock(Strict):
    """The result of a call. `is_error` is ignored: the model reads that from the content."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[ReadText], Field(max_length=MAX_PARTS)] = ""
    is_error: Ignored = None
    cache_control: Ignored = None


AnyBlock = Annotated[
    Annotated[
        TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock,
        Field(discriminator="type"),
    ],
    only("text", "thinking", "redacted_thinking", "tool_use", "tool_result", what="Blocks"),
]


class AnthropicMessage(Strict):
    """One turn of the conversation."""

    role: Literal["user", "assistant"]
    content: str | Annotated[list[AnyBlock], Field(min_length=1, max_length=MAX_PARTS)]


class CustomTool(Strict):
    """A function that the client runs itself."""

    type: Literal["custom"] | None = None
    name: FunctionName
    description: str | None = None
    input_schema: Json
    strict: bool | None = None
    cache_control: Ignored = None
    defer_loading: Literal[False] | None = None
    eager_input_streaming: Ignored = None
    input_examples: Ignored = None
    allowed_callers: Ignored = None

    @property
    def as_function(self) -> Json:
        function = {"name": self.name, "parameters": self.input_schema}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function}


class ChosenTool(Strict):
    """Whether tools may be called, or which one must be."""

    type: Literal["auto", "any", "tool", "none"]
    name: FunctionName | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Strict):
    """Blocks of type "thinking" are only answered if it is enabled or adaptive."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Ignored = None
    display: Ignored = None


class OutputFormat(Strict):
    """The JSON schema that the answer must follow."""

    type: Literal["json_schema"]
    schema_: Json = Field(alias="schema")


class OutputConfig(Strict):
    """How the answer is to be written."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class AnthropicPrompt(Strict):
    """What a request for an answer and a request for the number of its tokens share."""

    model: str
    messages: Annotated[list[AnthropicMessage], Field(min_length=1, fail_fast=True)]
    system: str | Annotated[list[ReadText], Field(max_length=MAX_PARTS)] | None = None
    tools: (
        Annotated[
            list[Annotated[CustomTool, only("custom", what="Tools")]], Field(max_length=MAX_TOOLS)
        ]
        | None
    ) = None
    tool_choice: ChosenTool | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Ignored = None
    context_management: Ignored = None

    @property
    def usable_tools(self) -> Sequence[CustomTool]:
        """The tools that the prompt names."""
        is_told = self.tool_choice is None or self.tool_choice.type != "none"
        return (self.tools or ()) if is_told else ()

    @property
    def thinks(self) -> bool:
        return self.thinking is not None and self.thinking.type != "disabled"


class CountTokensRequest(AnthropicPrompt):
    """POST /v1/messages/count_tokens."""


class MessagesRequest(AnthropicPrompt):
    """POST /v1/messages."""

    max_tokens: int = Field(ge=1, lt=2**31)
    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stream: bool | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    # What cannot change the answer.
    metadata: Ignored = None
    service_tier: Ignored = None
    inference_geo: Ignored = None
    speed: Ignored = None
    diagnostics: Ignored = None
