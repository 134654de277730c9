"""What a client asks of sampling, checked against the model that shall answer."""

from runtime.coordinator.serving import Serving
from runtime.protocol.openai import ApiError, GenerationRequest
from runtime.protocol.routes import Sampling

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
                    status=400,
                    message=f"{name!r} names token {token_id}, which is not in the vocabulary of "
                    f"this model; ids run from 0 to {vocabulary - 1}",
                    param=name,
                    code="invalid_value",
                )
    stop_token_ids = dict.fromkeys([*serving.tokenizer.stop_token_ids])
    stop_token_ids |= dict.fromkeys(request.stop_token_ids or ())
    return Sampling(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k or 0,
        seed=seed % _SEEDS,
        max_tokens=max_tokens,
        stop_token_ids=tuple(stop_token_ids),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        logit_bias=tuple(
            (int(token), float(bias)) for token, bias in (request.logit_bias or {}).items()
        ),
        logprobs=request.alternatives,
        grammar=request.grammar,
    )


def seed_of_choice(seed: int, choice: int) -> int:
    """The first choice has the request's own seed, so that `n` does not change it."""
    return (seed + choice * _NEXT_CHOICE) % _SEEDS
