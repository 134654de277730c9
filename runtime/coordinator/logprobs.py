"""Logprobs in the two shapes of OpenAI's answers."""

from collections.abc import Callable, Sequence
from typing import Any

from runtime.coordinator.live_request import Delta
from runtime.protocol.openai_answers import (
    ChatLogprobs,
    CompletionLogprobs,
    TokenAlternative,
    TokenLogprob,
)
from runtime.protocol.sampled import Logprobs

_NO_CHARACTER = "\ufffd"
TokenText = Callable[[int], str]


def chat_logprobs(deltas: Sequence[Delta], text_of: TokenText) -> ChatLogprobs | None:
    """Of the tokens that have some; None when none was asked for."""
    told = _told(deltas)
    if not told:
        return None
    return ChatLogprobs(
        content=tuple(
            TokenLogprob(
                **_token(delta.token_id, logprobs.token, text_of),
                top_logprobs=tuple(
                    TokenAlternative(**_token(token_id, logprob, text_of))
                    for token_id, logprob in logprobs.most_likely
                ),
            )
            for delta, logprobs in told
        )
    )


def completion_logprobs(
    deltas: Sequence[Delta], text_of: TokenText, *, offset: int
) -> CompletionLogprobs | None:
    """As `chat_logprobs`; the text of the first of `deltas` begins at character `offset`."""
    told = _told(deltas)
    if not told:
        return None
    offsets = []
    for delta in deltas:
        offsets.append(offset)
        offset += len(delta.text)
    return CompletionLogprobs(
        tokens=tuple(text_of(delta.token_id) for delta, _ in told),
        token_logprobs=tuple(logprobs.token for _, logprobs in told),
        top_logprobs=tuple(
            {text_of(token_id): logprob for token_id, logprob in logprobs.most_likely}
            for _, logprobs in told
        ),
        text_offset=tuple(offsets[: len(told)]),
    )


def _told(deltas: Sequence[Delta]) -> list[tuple[Delta, Logprobs]]:
    return [(delta, delta.logprobs) for delta in deltas if delta.logprobs is not None]


def _token(token_id: int, logprob: float, text_of: TokenText) -> dict[str, Any]:
    text = text_of(token_id)
    whole = _NO_CHARACTER not in text
    return {"token": text, "logprob": logprob, "bytes": tuple(text.encode()) if whole else None}
