"""What a client asks of lengths and sampling, checked against the model that is to answer."""

from typing import TypeVar

from runtime.coordinator.serving import Serving
from runtime.protocol.data import Sampling
from runtime.protocol.openai import ApiError
from runtime.protocol.openai_parameters import GenerationRequest

_Number = TypeVar("_Number", int, float)
_SEEDS = 2**64
_NEXT_CHOICE = 0x9E3779B97F4A7C15  # odd, so that no two choices of a request share a seed


def sampling_of(
    request: GenerationRequest, serving: Serving, *, max_tokens: int, seed: int
) -> Sampling:
    """The parameters for the first choice. Raises ApiError 400 for what the model does not have."""
    vocabulary = serving.tokenizer.vocabulary_size
    for name, token_ids in (
        ("logit_bias", [int(token) for token in request.logit_bias or {}]),
        ("stop_token_ids", request.stop_token_ids or []),
    ):
        for token_id in token_ids:
            if token_id >= vocabulary:
                raise ApiError(
                    message=f"{name!r} names token {token_id}, which is not in the vocabulary of "
                    f"this model; ids run from 0 to {vocabulary - 1}",
                    param=name,
                    code="invalid_value",
                )
    if request.min_tokens > max_tokens:
        raise ApiError(
            message=f"'min_tokens' is {request.min_tokens}, but at most {max_tokens} tokens can "
            "come; lower it",
            param="min_tokens",
            code="invalid_value",
        )
    ends = () if request.ignore_eos else serving.tokenizer.stop_token_ids
    stop_token_ids = dict.fromkeys([*ends, *(request.stop_token_ids or ())])
    defaults = serving.tokenizer.sampling_defaults
    top_k = _or(request.top_k, defaults.top_k)
    return Sampling(
        temperature=_or(request.temperature, defaults.temperature),
        top_p=_or(request.top_p, defaults.top_p),
        top_k=max(0, top_k),
        seed=seed % _SEEDS,
        max_tokens=max_tokens,
        min_tokens=request.min_tokens,
        stop_token_ids=tuple(stop_token_ids),
        min_p=_or(request.min_p, defaults.min_p),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_or(request.repetition_penalty, defaults.repetition_penalty),
        logit_bias=tuple(
            (int(token), float(bias)) for token, bias in (request.logit_bias or {}).items()
        ),
        logprobs=request.alternatives,
        grammar=request.grammar,
    )


def _or(asked: _Number | None, default: _Number) -> _Number:
    return default if asked is None else asked


def seed_of_choice(seed: int, choice: int) -> int:
    """The first choice has the request's own seed, so that `n` does not change it."""
    return (seed + choice * _NEXT_CHOICE) % _SEEDS


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
            param=request.limit_param,
            code="context_length_exceeded",
        )
    return asked
