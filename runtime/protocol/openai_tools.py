"""Functions that a chat's model may call: as clients offer them, and as they stand in a chat."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

MAX_TOOLS = 128
_ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

FunctionName = Annotated[
    str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")
]  # Anthropic allows 128


class Strict(BaseModel):
    """What a client sends: nothing unknown, nothing converted; null means not given."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}


def only(*known: str, what: str) -> BeforeValidator:
    """Refuses objects of other types by name."""

    def check(given: object) -> object:
        kind = given.get("type") if isinstance(given, dict) else None
        if kind is not None and kind not in known:
            raise PydanticCustomError(
                "unsupported_type",
                "{what} of type {kind} are not supported; supported are {known}",
                {
                    "what": what,
                    "kind": json.dumps(kind, default=str)[:80],
                    "known": ", ".join(known),
                },
            )
        return given

    return BeforeValidator(check)


class _Ignored:
    """Marks what is accepted although nothing depends on it."""


IGNORED = _Ignored()
Ignored = Annotated[Any, IGNORED]


def ignored_in(request: BaseModel) -> set[str]:
    """What a client gave that is ignored, as dotted paths without indices."""
    found = set()
    for name, field in type(request).model_fields.items():
        value = getattr(request, name)
        if value is None or name not in request.model_fields_set:
            continue
        if IGNORED in field.metadata:
            found.add(name)
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, BaseModel):
                found |= {f"{name}.{path}" for path in ignored_in(each)}
    return found


class Function(Strict):
    """`parameters` is a JSON schema; `strict` changes nothing: where a call is forced its
    arguments always follow the schema, elsewhere they never have to."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Ignored = None


class Tool(Strict):
    """A function that the client runs itself."""

    type: Literal["function"]
    function: Function
    cache_control: Ignored = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates of Hugging Face expect it."""
        function = self.function
        return {
            "type": "function",
            "function": {
                "name": function.name,
                "description": function.description or "",
                "parameters": function.parameters or _ANY_ARGUMENTS,
            },
        }

    @property
    def call_schema(self) -> dict[str, Any]:
        """The JSON schema of a call of this function: its name first, then the arguments."""
        return {
            "type": "object",
            "properties": {
                "name": {"const": self.function.name},
                "arguments": self.function.parameters or _ANY_ARGUMENTS,
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }


class NamedFunction(Strict):
    """A function by its name."""

    name: FunctionName


class NamedTool(Strict):
    """The one function that must be called."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = (
    Literal["none", "auto", "required"] | Annotated[NamedTool, only("function", what="Choices")]
)


class CalledFunction(Strict):
    """`arguments` is JSON as text."""

    name: str
    arguments: str


class ToolCall(Strict):
    """A call that the assistant made earlier in the chat."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Ignored = None
    cache_control: Ignored = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates of Hugging Face expect it: the arguments as an object.

        Raises ValueError when they are not JSON or hold half of a surrogate pair, RecursionError
        when they are nested too deeply.
        """
        arguments = json.loads(self.function.arguments or "{}")
        json.dumps(arguments, ensure_ascii=False).encode()
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.function.name, "arguments": arguments},
        }


def forced_schema(tools: list[Tool], choice: ToolChoice) -> str:
    """The JSON schema that an answer must follow to be the call that `choice` demands; empty when
    it demands none."""
    if isinstance(choice, NamedTool):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
    elif choice != "required":
        return ""
    schemas = [tool.call_schema for tool in tools]
    return json.dumps(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})
