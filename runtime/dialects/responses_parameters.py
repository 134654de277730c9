"""The parameters of OpenAI's Responses API: which are read, ignored or refused."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from runtime.protocol.openai_parameters import MAX_PARTS, Temperature, TopP
from runtime.protocol.openai_tools import MAX_TOOLS, FunctionName, Ignored, Strict, only

Json = dict[str, Any]
MAX_ITEMS = 16384
_LOGPROBS = "message.output_text.logprobs"


class InputText(Strict):
    """Text that the user or the assistant said."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: Ignored = None
    logprobs: Ignored = None


class InputRefusal(Strict):
    """What the assistant said when it refused; read as text."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Parts = Annotated[
    list[
        Annotated[
            Annotated[InputText | InputRefusal, Field(discriminator="type")],
            only("input_text", "output_text", "refusal", what="Parts"),
        ]
    ],
    Field(max_length=MAX_PARTS),
]


class InputMessage(Strict):
    """One turn of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None


class InputCall(Strict):
    """A call that the assistant made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: Ignored = None
    status: Ignored = None
    caller: Ignored = None


class InputResult(Strict):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | Parts
    id: Ignored = None
    status: Ignored = None


class ReasoningText(Strict):
    """What the assistant thought, or a part of it."""

    type: Literal["reasoning_text"]
    text: str


class InputReasoning(Strict):
    """What the assistant thought before; the chat template gets its `content`."""

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningText], Field(max_length=MAX_PARTS)] | None = None
    id: Ignored = None
    summary: Ignored = None
    encrypted_content: Ignored = None
    status: Ignored = None


def _as_message(item: object) -> object:
    """An item without a type is a message."""
    return {"type": "message", **item} if isinstance(item, dict) else item


InputItem = Annotated[
    Annotated[InputMessage | InputCall | InputResult | InputReasoning, Field(discriminator="type")],
    BeforeValidator(_as_message),
    only("message", "function_call", "function_call_output", "reasoning", what="Input items"),
]


class FunctionTool(Strict):
    """A function that the client runs itself."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None
    defer_loading: Literal[False] | None = None
    allowed_callers: Ignored = None

    @property
    def as_function(self) -> Json:
        function = self.model_dump(include={"name", "description", "parameters"}, exclude_none=True)
        return {"type": "function", "function": function}


class ChosenFunction(Strict):
    """The one function that must be called."""

    type: Literal["function"]
    name: FunctionName


class TextFormat(Strict):
    """`name` and `schema` belong to the type "json_schema"."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: Json | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(Strict):
    """How the answer is to be written."""

    format: TextFormat | None = None
    verbosity: Ignored = None


class ReasoningOptions(Strict):
    """How much the model is to think."""

    effort: str | None = None
    summary: Ignored = None
    generate_summary: Ignored = None


class StreamedOptions(Strict):
    """What a stream tells beside the answer."""

    include_obfuscation: Ignored = None


def _without_logprobs(given: object) -> object:
    """Every other value of `include` belongs to tools that are refused, or changes nothing."""
    if isinstance(given, list) and _LOGPROBS in given:
        raise PydanticCustomError(
            "unsupported_value", "{name} is not answered here; leave it out", {"name": _LOGPROBS}
        )
    return given


class ResponsesRequest(Strict):
    """POST /v1/responses. Nothing is stored: the whole conversation is in `input`."""

    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_ITEMS)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    tools: (
        Annotated[
            list[Annotated[FunctionTool, only("function", what="Tools")]],
            Field(max_length=MAX_TOOLS),
        ]
        | None
    ) = None
    tool_choice: (
        Literal["none", "auto", "required"]
        | Annotated[ChosenFunction, only("function", what="Choices")]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    background: Literal[False] | None = None
    metadata: dict[str, str] | None = None  # the answer repeats it
    # What cannot change the answer.
    include: Annotated[Ignored, BeforeValidator(_without_logprobs)] = None
    max_tool_calls: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    safety_identifier: Ignored = None
    service_tier: Ignored = None
    store: Ignored = None
    stream_options: StreamedOptions | None = None
    top_logprobs: Literal[0] | None = None
    truncation: Ignored = None
    user: Ignored = None
    # What is kept by a server that stores answers.
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None
