"""How many tokens prompt and answer may have."""

from runtime.coordinator.serving import Serving
from runtime.protocol.openai import ApiError
from runtime.protocol.openai_parameters import GenerationRequest


def output_limit(
    request: GenerationRequest,
    serving: Serving,
    *,
    prompt_tokens: int,
    default_tokens: int | None,
    param: str,
) -> int:
    """Output tokens allowed, at least 1. Raises ApiError 400 when the context does not hold it."""
    context = serving.plan.max_context_tokens
    if prompt_tokens == 0:
        raise ApiError(
            message=f"{param!r} holds no tokens; write something", param=param, code="invalid_value"
        )
    room = context - prompt_tokens
    if room < 1:
        raise ApiError(
            message=f"the prompt has {prompt_tokens} tokens, but this deployment's context holds "
            f"{context} for prompt and answer together; shorten it to at most {context - 1}",
            param=param,
            code="context_length_exceeded",
        )
    asked = request.token_limit
    if asked is None:
        return room if default_tokens is None else min(default_tokens, room)
    if asked > room:
        raise ApiError(
            message=f"the prompt has {prompt_tokens} tokens and up to {asked} were asked for, but "
            f"this deployment's context holds {context} together; ask for at most {room}",
            param="max_tokens",
            code="context_length_exceeded",
        )
    return asked
