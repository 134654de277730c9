"""Text <-> token ids for one checkpoint, and its chat template; no torch, no transformers.

Reads `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`, `config.json` and
`generation_config.json` of a Hugging Face checkpoint directory, or what a GGUF file says in their
place.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import ValidationError

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import (
    CHAT_TEMPLATE,
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    read_object,
    read_text,
    source_of,
)
from runtime.coordinator.control_tokens import ControlTokens
from runtime.coordinator.message_reader import MARKERS, Thoughts, tags_in
from runtime.coordinator.tool_calls import ToolDialect, dialect_of, opening_of
from runtime.free_memory import give_back_free_memory
from runtime.protocol.complaints import complaint
from runtime.protocol.openai_parameters import USUAL_DEFAULTS, ChatMessage, SamplingDefaults
from runtime.protocol.openai_tools import Tool

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_STOP_TOKEN_IDS = 255  # protocol.data carries no more
_LONG_TEXT = 100_000  # characters
_TEXTS_KEPT = 1 << 16  # of tokens that are decoded alone
_PROMPT_END = 32  # tokens, among which is the tag of a thought that a prompt ends with
# A template is a program: what it may compute, it may compute wrongly.
_RAISED_BY_TEMPLATES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class TokenizerError(CheckpointError):
    """A checkpoint whose tokenizer cannot be used, or a text it cannot take."""


class CheckpointTokenizer:
    """The tokenizer of the deployed checkpoint; immutable, so safe to use from any task."""

    def __init__(
        self,
        *,
        tokenizer: "Tokenizer",
        chat_template: str | None,
        special_tokens: dict[str, str],
        stop_token_ids: tuple[int, ...],
        vocabulary_size: int,
        sampling_defaults: SamplingDefaults = USUAL_DEFAULTS,
    ) -> None:
        """`special_tokens` are the names a chat template may use, e.g. bos_token. `tokenizer` is
        changed: it must not be used elsewhere."""
        self._special_tokens = special_tokens
        self._template_source = chat_template or ""
        self._template: jinja2.Template | None = None
        self.template_variables: frozenset[str] = frozenset()  # that the chat template reads
        if chat_template is not None:
            self._template, self.template_variables = _compile_template(chat_template)
        self._controls = ControlTokens(
            tokenizer, written=self._written_around_messages(), markers=MARKERS
        )
        self._decode_alone = lru_cache(_TEXTS_KEPT)(
            lambda token_id: self._controls.decode([token_id], skip_control=True)
        )
        self.stop_token_ids = stop_token_ids
        self.vocabulary_size = vocabulary_size
        self.sampling_defaults = sampling_defaults

    @property
    def tool_dialect(self) -> ToolDialect:
        """How this model calls tools. Raises TokenizerError when its template has none, or has
        them in a way that is not known here."""
        if "tools" not in self._template_source:
            raise TokenizerError(
                "this model's chat template has no tools; remove 'tools', or deploy a model that "
                "was taught to call them"
            )
        dialect = dialect_of(self._template_source)
        if dialect is None:
            raise TokenizerError(
                "this model writes calls of tools in a way that is not known here (known are "
                "those of Hermes, Qwen, Qwen3-Coder, Llama 3, Mistral, DeepSeek and gpt-oss); "
                "remove 'tools'"
            )
        return dialect

    @property
    def has_channels(self) -> bool:
        """True if every answer of this model is divided into channels, as those of gpt-oss."""
        return dialect_of(self._template_source) is ToolDialect.HARMONY

    def thoughts_after(self, prompt_ids: Sequence[int]) -> Thoughts | None:
        """How the answer to that prompt marks thoughts; None: not at all."""
        tags = tags_in(self._template_source)
        if tags is None:
            return None
        end = self.decode_marked(prompt_ids[-_PROMPT_END:]).rstrip()
        return Thoughts(tags=tags, is_open=end.endswith(tags[0]))

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] = (),
        forced: bool = False,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[int]:
        """Token ids of the rendered conversation, ending where the assistant is to speak.

        With `forced` it must go on with a call of one of `tools`, so what its dialect writes before
        a call is there already. The chat template gets `variables`, too. Control tokens in
        the clients' texts are ordinary text. Raises TokenizerError when there is no template, when
        it has no tools, or when it refuses the messages.
        """
        plain = []
        for message in messages:
            role = "system" if message.role == "developer" else message.role
            plain.append({"role": role, "content": message.text, **_rare_fields(message)})
        opening = opening_of(self.tool_dialect) if forced else ""
        try:
            text = self._render(
                self._controls.shield(plain),
                tools=self._controls.shield([tool.for_template() for tool in tools]) or None,
                variables=self._controls.shield(variables),
            )
        except _RAISED_BY_TEMPLATES as error:
            raise TokenizerError(
                f"the model's chat template refuses these messages: {error}"
            ) from error
        return self._encode(text + opening, add_special_tokens=False)

    def encode_text(self, text: str) -> list[int]:
        """Token ids of a bare prompt, with the tokenizer's own special tokens.

        The prompt is the client's from end to end, so its control tokens are genuine.
        """
        return self._encode(text, add_special_tokens=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens; U+FFFD where bytes are no UTF-8 (yet)."""
        if len(token_ids) == 1:
            return self._decode_alone(token_ids[0])
        return self._controls.decode(token_ids, skip_control=True)

    def decode_marked(self, token_ids: Sequence[int]) -> str:
        """Text as `decode` gives it, with the control tokens that divide a message."""
        return self._controls.decode_marked(token_ids)

    def token_text(self, token_id: int) -> str:
        """One token alone, special or not; U+FFFD where it is no whole characters."""
        return self._controls.decode([token_id], skip_control=False)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        token_ids = self._controls.encode(text, add_special_tokens=add_special_tokens)
        if len(text) > _LONG_TEXT:
            give_back_free_memory()  # the encoder's, some 200 bytes for one of the text
        return token_ids

    def _render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Raises `_RAISED_BY_TEMPLATES`, and TokenizerError without a template."""
        if self._template is None:
            raise TokenizerError(
                "this model has no chat template; use /v1/completions, or add a chat_template to "
                "the checkpoint's tokenizer_config.json"
            )
        return self._template.render(
            {
                "documents": None,
                **variables,
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": True,
                **self._special_tokens,
            }
        )

    def _written_around_messages(self) -> str:
        """What the template writes for a conversation without words."""
        turns = [{"role": role, "content": ""} for role in ("system", "user", "assistant", "user")]
        for messages in (turns, turns[1:]):  # not every template takes a system's message
            try:
                return self._render(messages)
            except (*_RAISED_BY_TEMPLATES, TokenizerError):
                continue
        return ""


def _rare_fields(message: ChatMessage) -> dict[str, Any]:
    """The fields of a message that few have. Raises TokenizerError."""
    told: dict[str, Any] = {}
    if message.thoughts is not None:
        told["reasoning_content"] = message.thoughts
    if message.name is not None:
        told["name"] = message.name
    if message.tool_call_id is not None:
        told["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        try:
            told["tool_calls"] = [call.for_template() for call in message.tool_calls]
        except (ValueError, RecursionError) as error:
            raise TokenizerError(
                f"the arguments of an earlier function call are not JSON: {error}"
            ) from error
    return told


def load_tokenizer(checkpoint: Path) -> CheckpointTokenizer:
    """Raises CheckpointError naming the file that is missing or wrong, and the remedy."""
    try:
        from tokenizers import Tokenizer  # not in the base install: only who tokenizes has it
    except ModuleNotFoundError as error:
        raise TokenizerError(
            "the package tokenizers is not installed here; pip install 'helixweb[coordinator]'"
        ) from error
    path = source_of(checkpoint, TOKENIZER)
    try:
        text = read_text(checkpoint, TOKENIZER)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} is not a tokenizer: {error}; fetch it again") from error
    if text is None:
        raise TokenizerError(
            f"{path} does not exist; the coordinator needs the checkpoint's tokenizer files "
            "(tokenizer.json, tokenizer_config.json) at the deployed path"
        )
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the Rust side raises nothing more specific
        raise TokenizerError(f"{path} is not a tokenizer: {error}; fetch it again") from error
    config = read_object(checkpoint, CONFIG) or {}
    generation = read_object(checkpoint, GENERATION_CONFIG) or {}
    settings = read_object(checkpoint, TOKENIZER_CONFIG) or {}
    special_tokens = {
        key: text
        for key, value in settings.items()
        if key.endswith("_token") and (text := _token_text(value)) is not None
    }
    eos = generation.get("eos_token_id")
    eos = config.get("eos_token_id") if eos is None else eos
    stops = [] if eos is None else eos if isinstance(eos, list) else [eos]
    tokenizer_eos = tokenizer.token_to_id(special_tokens.get("eos_token", ""))
    if tokenizer_eos is not None:
        stops = [*stops, tokenizer_eos]
    unique_stops = tuple(dict.fromkeys(stops))
    if len(unique_stops) > MAX_STOP_TOKEN_IDS or not all(
        isinstance(token, int) and token >= 0 for token in unique_stops
    ):
        raise TokenizerError(
            f"eos_token_id of {checkpoint} is {eos!r}; it must be a token id or a list of at most "
            f"{MAX_STOP_TOKEN_IDS} token ids"
        )
    vocabulary_size = config.get("vocab_size", tokenizer.get_vocab_size())
    if not isinstance(vocabulary_size, int):
        raise TokenizerError(
            f"vocab_size of {checkpoint} is {vocabulary_size!r}; it must be a whole number"
        )
    return CheckpointTokenizer(
        tokenizer=tokenizer,
        chat_template=_find_template(checkpoint, settings),
        special_tokens=special_tokens,
        stop_token_ids=unique_stops,
        vocabulary_size=vocabulary_size,
        sampling_defaults=_sampling_defaults(checkpoint / GENERATION_CONFIG, generation),
    )


def _sampling_defaults(path: Path, generation: dict[str, Any]) -> SamplingDefaults:
    """Raises TokenizerError for values that no request could ask for."""
    found = {
        name: generation[name]
        for name in SamplingDefaults.model_fields
        if generation.get(name) is not None
    }
    try:
        return SamplingDefaults.model_validate(found)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        raise TokenizerError(
            f"{problem['loc'][0]} of {path} is {problem['input']!r}: {complaint(problem)}"
        ) from error


def _find_template(checkpoint: Path, settings: dict[str, Any]) -> str | None:
    try:
        text = read_text(checkpoint, CHAT_TEMPLATE)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"{checkpoint / CHAT_TEMPLATE} is not UTF-8: {error}; fetch it again"
        ) from error
    if text is not None:
        return text
    template = settings.get("chat_template")
    try:
        if isinstance(template, list):  # several named ones
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
    except (TypeError, KeyError) as error:
        raise TokenizerError(
            f"chat_template of {checkpoint} is a list, but not of names and templates: {error!r}"
        ) from error
    if template is not None and not isinstance(template, str):
        raise TokenizerError(
            f"chat_template of {checkpoint} is {template!r}; it must be text or a list of templates"
        )
    return template


def _compile_template(source: str) -> tuple[jinja2.Template, frozenset[str]]:
    """The template, and the names of the variables that it reads.

    Compiled as transformers does; sandboxed, since a checkpoint is a stranger's.
    """

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def strftime_now(format_: str) -> str:
        return datetime.now().astimezone().strftime(format_)

    def to_json(value: object, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    try:
        variables = meta.find_undeclared_variables(environment.parse(source))
        return environment.from_string(source), frozenset(variables)
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(
            f"the checkpoint's chat template is no valid Jinja: line {error.lineno}: {error}"
        ) from error


def _token_text(value: object) -> str | None:
    """A special token is written as text or as {"content": text, ...}."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
