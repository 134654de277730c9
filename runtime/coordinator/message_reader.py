"""Turns the text of one answer into the assistant's message: what it says, what it calls."""

from runtime.coordinator.tool_calls import (
    CallArguments,
    CallBegins,
    Piece,
    ToolCallReader,
    ToolDialect,
)
from runtime.protocol.openai_answers import (
    AssistantMessage,
    ChoiceFinish,
    FinishReason,
    FunctionPart,
    ToolCallPart,
)


class MessageReader:
    """Of one choice, whole or part by part. Without a dialect all is text.

    `call_ids` makes the ids of calls: unlike those of any other answer. Calls beyond `most_calls`
    are left out; None: none is.
    """

    def __init__(
        self, dialect: ToolDialect | None, *, call_ids: str, most_calls: int | None = None
    ) -> None:
        self._reader = None if dialect is None else ToolCallReader(dialect)
        self._call_ids = call_ids
        self._most_calls = most_calls

    def whole(self, text: str) -> AssistantMessage:
        """The message of an answer that has ended."""
        if self._reader is None:
            return AssistantMessage(role="assistant", content=text)
        pieces = self._wanted(self._reader.push(text) + self._reader.flush())
        calls: dict[int, tuple[str, str]] = {}  # index -> name and arguments
        for piece in pieces:
            if isinstance(piece, CallBegins):
                calls[piece.index] = (piece.name, "")
            elif isinstance(piece, CallArguments):
                name, arguments = calls[piece.index]
                calls[piece.index] = (name, arguments + piece.text)
        return AssistantMessage(
            role="assistant",
            content=_text(pieces) or ("" if not calls else None),
            tool_calls=tuple(
                ToolCallPart(
                    id=self._id(index),
                    type="function",
                    function=FunctionPart(name=name, arguments=arguments),
                )
                for index, (name, arguments) in calls.items()
            )
            or None,
        )

    def part(self, text: str, *, is_last: bool) -> AssistantMessage | None:
        """What the next `text` of a stream makes certain; None when that is nothing."""
        if self._reader is None:
            return AssistantMessage(content=text) if text else None
        pieces = self._reader.push(text)
        if is_last:
            pieces += self._reader.flush()
        pieces = self._wanted(pieces)
        if not pieces:
            return None
        parts = (self._streamed(piece) for piece in pieces if not isinstance(piece, str))
        return AssistantMessage(content=_text(pieces) or None, tool_calls=tuple(parts) or None)

    def finish(self, reason: FinishReason | None) -> ChoiceFinish | None:
        """Why the choice ended, once its text was read."""
        if reason == "stop" and self._reader is not None and self._reader.calls:
            return "tool_calls"
        return reason

    def _wanted(self, pieces: list[Piece]) -> list[Piece]:
        most = self._most_calls
        if most is None:
            return pieces
        return [piece for piece in pieces if isinstance(piece, str) or piece.index < most]

    def _streamed(self, piece: CallBegins | CallArguments) -> ToolCallPart:
        if isinstance(piece, CallArguments):
            return ToolCallPart(index=piece.index, function=FunctionPart(arguments=piece.text))
        return ToolCallPart(
            index=piece.index,
            id=self._id(piece.index),
            type="function",
            function=FunctionPart(name=piece.name, arguments=""),
        )

    def _id(self, index: int) -> str:
        return f"call_{self._call_ids}-{index}"


def _text(pieces: list[Piece]) -> str:
    return "".join(piece for piece in pieces if isinstance(piece, str))
