"""The parameters of requests in the OpenAI dialect: which there are, and their bounds.

What cannot change the answer is accepted and ignored, and named in a header of the answer. What
would be answered wrongly is refused by name, so no client believes it worked. Null is as if not
given. Extensions: `top_k`, `min_p`, `repetition_penalty`, `stop_token_ids`, `ignore_eos`,
`min_tokens`, `chat_template_kwargs`, `return_token_ids`, `cache_salt` (requests with another reuse
nothing of the prompt), `priority` (0 goes first; more steps back behind all who ask for less) and
`helix` in answers.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from runtime.protocol.openai_tools import (
    MAX_TOOLS,
    Ignored,
    Strict,
    Tool,
    ToolCall,
    ToolChoice,
    forced_schema,
    ignored_in,
    only,
)

MAX_STOP_STRINGS = 32  # OpenAI takes 4; code editors send a dozen or more
MAX_STOP_TOKEN_IDS = 64
MAX_CHOICES = 8
MAX_BIASES = 1024
MAX_PARTS = 1024  # of one message's content

StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
# A body may hold a million of them, and every complaint costs more than what it complains of.
TokenIds = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]


class StreamOptions(Strict):
    """What a stream tells beside the answer."""

    include_usage: bool = False
    include_obfuscation: Ignored = None
    continuous_usage_stats: Literal[False] | None = None


class TextPart(Strict):
    """A part of a message's content."""

    type: Literal["text"]
    text: str
    cache_control: Ignored = None


class RefusalPart(Strict):
    """What the assistant said when it refused."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Parts = Annotated[
    list[
        Annotated[
            Annotated[TextPart | RefusalPart, Field(discriminator="type")],
            only("text", "refusal", what="Parts"),
        ]
    ],
    Field(max_length=MAX_PARTS),
]


class ChatMessage(Strict):
    """`tool_calls` belong to the assistant, who may then say nothing else, and `tool_call_id` to
    the role "tool", which answers one of them. An assistant's message may be sent back as it came,
    with its `refusal`, which is its text then, and its `reasoning_content` (or `reasoning`), which
    the chat template gets."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Parts | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: Ignored = None
    cache_control: Ignored = None
    provider_specific_fields: Ignored = None
    audio: None = None
    function_call: None = None

    @property
    def text(self) -> str:
        if self.content is None:
            return self.refusal or ""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)

    @property
    def thoughts(self) -> str | None:
        """What the assistant thought before it spoke."""
        return self.reasoning if self.reasoning_content is None else self.reasoning_content


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


Tools = Annotated[
    list[Annotated[Tool, only("function", what="Tools")]], Field(max_length=MAX_TOOLS)
]


def _not_too_many(biases: object) -> object:
    """Counted before each is looked at."""
    if isinstance(biases, dict) and len(biases) > MAX_BIASES:
        raise PydanticCustomError(
            "too_long",
            "Dictionary should have at most {most} items, not {count}",
            {"most": MAX_BIASES, "count": len(biases)},
        )
    return biases


Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]
TopK = Annotated[int, Field(ge=-1, lt=2**31)]
MinP = Annotated[float, Field(ge=0, le=1)]
RepetitionPenalty = Annotated[float, Field(gt=0, le=10)]
TokenBias = Annotated[float, Field(ge=-100, le=100)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class SamplingDefaults(Strict):
    """How a request is sampled where it does not say; a checkpoint may have its own."""

    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    repetition_penalty: RepetitionPenalty = 1.0


USUAL_DEFAULTS = SamplingDefaults()


class GenerationRequest(Strict):
    """What both endpoints share."""

    model: str
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    min_p: MinP | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: Annotated[dict[str, TokenBias], BeforeValidator(_not_too_many)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    response_format: ResponseFormat | None = None
    ignore_eos: bool = False
    min_tokens: int = Field(default=0, ge=0, lt=2**31)
    return_token_ids: bool = False
    priority: int = Field(default=0, ge=0, le=100)
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    # What cannot change the answer.
    user: Ignored = None
    metadata: Ignored = None
    store: Ignored = None
    service_tier: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    spaces_between_special_tokens: Ignored = None
    best_of: int | None = Field(default=None, ge=1, le=MAX_CHOICES)  # 1 or `n`
    # Only as it is anyway.
    use_beam_search: Literal[False] | None = None
    skip_special_tokens: Literal[True] | None = None
    include_stop_str_in_output: Literal[False] | None = None

    @property
    def token_limit(self) -> int | None:
        """The most output tokens the client allows; None when it did not say."""
        return self.max_tokens

    @property
    def limit_param(self) -> str:
        """The parameter that `token_limit` comes from."""
        return "max_tokens"

    @property
    def ignored(self) -> set[str]:
        """Names of what was given and is ignored."""
        return ignored_in(self)

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
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    prediction: Ignored = None
    verbosity: Ignored = None
    modalities: list[Literal["text"]] | None = None
    add_generation_prompt: Literal[True] | None = None
    continue_final_message: Literal[False] | None = None
    add_special_tokens: Literal[False] | None = None

    @property
    def template_variables(self) -> dict[str, Any]:
        """What the chat template gets beside messages and tools."""
        variables = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", self.reasoning_effort)
        return variables

    @property
    def usable_tools(self) -> list[Tool]:
        """The tools that the prompt names."""
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

    @property
    def limit_param(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. One prompt: text or token ids, bare or as a list of one."""

    logprobs: int | None = Field(default=None, ge=0, le=5)
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    add_special_tokens: Literal[True] | None = None
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


class TokenizeRequest(Strict):
    """POST /tokenize: `messages`, or else the bare text `prompt`."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)] | None = None
    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prompt: str | None = None
    add_generation_prompt: Literal[True] | None = None
    return_token_strs: Literal[False] | None = None
