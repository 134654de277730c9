"""Picks the next token from logits, the same whatever batch or node the request is in.

Legend: V vocabulary, S tokens seen.
"""

import math
from collections import Counter

import torch
from torch import Tensor

from runtime.engine.noise import mixed
from runtime.protocol.routes import Sampling
from runtime.protocol.sampled import Logprobs


class TokenHistory:
    """The tokens of a request so far, as penalties count them."""

    def __init__(self, sampling: Sampling) -> None:
        self.prompt = frozenset(sampling.prompt_ids)
        self.sampled = Counter(sampling.emitted_ids)

    def add(self, token_id: int) -> None:
        """`token_id` was sampled."""
        self.sampled[token_id] += 1


def adjusted(logits_V: Tensor, sampling: Sampling, history: TokenHistory | None) -> Tensor:
    """`logits_V` with biases and penalties; a new tensor unless there are none.

    Repetition (of prompt or answer) divides what is above 0 and multiplies what is below; then
    presence takes off once, frequency as often as the token was sampled.
    """
    if not sampling.logit_bias and history is None:
        return logits_V
    logits_V = logits_V.clone()
    if history is not None:
        if sampling.repetition_penalty != 1.0:
            seen_S = _indices(logits_V, [*(history.prompt | history.sampled.keys())])
            seen_logits_S = logits_V[seen_S]
            logits_V[seen_S] = torch.where(
                seen_logits_S > 0,
                seen_logits_S / sampling.repetition_penalty,
                seen_logits_S * sampling.repetition_penalty,
            )
        if sampling.presence_penalty or sampling.frequency_penalty:
            counts_S = torch.tensor(
                [*history.sampled.values()], dtype=logits_V.dtype, device=logits_V.device
            )
            logits_V[_indices(logits_V, [*history.sampled])] -= (
                sampling.presence_penalty + sampling.frequency_penalty * counts_S
            )
    for token_id, bias in sampling.logit_bias:
        logits_V[token_id] += bias
    return logits_V


def logprobs_of(logits_V: Tensor, token_id: int, *, count: int) -> Logprobs:
    """Of the model's own distribution: without temperature, penalties and what else is applied."""
    logprobs_V = logits_V.float().log_softmax(-1)
    values, indices = logprobs_V.topk(min(count, len(logprobs_V)))
    return Logprobs(
        token=float(logprobs_V[token_id]),
        most_likely=tuple(zip(indices.tolist(), values.tolist(), strict=True)),
    )


def _indices(logits_V: Tensor, token_ids: list[int]) -> Tensor:
    return torch.tensor(token_ids, dtype=torch.int64, device=logits_V.device)


def sample(logits_V: Tensor, sampling: Sampling, *, position: int) -> int:
    """Token id for `position` of the sequence. `logits_V`: float32, any device.

    Temperature 0 takes the largest logit. Else: scale by the temperature, keep those at least
    `min_p` times as probable as the most probable (0: all), of them the `top_k` largest (0: all),
    of them the smallest set of probability `top_p` (1: all), and take the largest of logit plus
    Gumbel noise, which draws from the softmax. The noise depends on (seed, position) alone.
    """
    if sampling.temperature <= 0:
        return int(logits_V.argmax())
    scaled_V = logits_V.cpu().double() / sampling.temperature
    kept_V = _keep_min_p(scaled_V, sampling.min_p)
    kept_V = _keep_top_p(_keep_top_k(kept_V, sampling.top_k), sampling.top_p)
    generator = torch.Generator().manual_seed(_noise_seed(sampling.seed, position))
    # -log(E) with E ~ Exp(1) is Gumbel noise
    exponential_V = torch.empty_like(kept_V).exponential_(generator=generator)
    return int((kept_V - exponential_V.log()).argmax())


def _keep_min_p(logits_V: Tensor, min_p: float) -> Tensor:
    if min_p <= 0:
        return logits_V
    return logits_V.masked_fill(logits_V < logits_V.max() + math.log(min_p), -torch.inf)


def _keep_top_k(logits_V: Tensor, top_k: int) -> Tensor:
    if not 0 < top_k < len(logits_V):
        return logits_V
    values, indices = logits_V.topk(top_k)
    return torch.full_like(logits_V, -torch.inf).scatter(0, indices, values)


def _keep_top_p(logits_V: Tensor, top_p: float) -> Tensor:
    if top_p >= 1:
        return logits_V
    values_V, indices_V = logits_V.sort(descending=True, stable=True)
    probabilities_V = values_V.softmax(0)
    before_V = probabilities_V.cumsum(0) - probabilities_V
    # a token stays while those before it do not reach top_p, so the first one always stays
    surplus_V = before_V >= top_p
    surplus_V[0] = False
    return logits_V.index_fill(0, indices_V[surplus_V], -torch.inf)


def _noise_seed(seed: int, position: int) -> int:
    """Signed 64 bits, as torch takes them."""
    return mixed(seed, position) - (1 << 63)
