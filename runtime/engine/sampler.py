"""Picks the next token from logits, the same whatever batch or node the request is in.

Legend: V vocabulary.
"""

import torch
from torch import Tensor

from runtime.protocol.data import Sampling

_MASK_64 = (1 << 64) - 1


def sample(logits_V: Tensor, sampling: Sampling, *, position: int) -> int:
    """Token id for `position` of the sequence. `logits_V`: float32, any device.

    Temperature 0 takes the largest logit. Else: scale by the temperature, keep the `top_k`
    largest (0: all), of them the smallest set of probability `top_p` (1: all), and take the
    largest of logit plus Gumbel noise, which draws from the softmax. The noise depends on
    (seed, position) alone.
    """
    if sampling.temperature <= 0:
        return int(logits_V.argmax())
    scaled_V = logits_V.cpu().double() / sampling.temperature
    kept_V = _keep_top_p(_keep_top_k(scaled_V, sampling.top_k), sampling.top_p)
    generator = torch.Generator().manual_seed(_noise_seed(sampling.seed, position))
    # -log(E) with E ~ Exp(1) is Gumbel noise
    exponential_V = torch.empty_like(kept_V).exponential_(generator=generator)
    return int((kept_V - exponential_V.log()).argmax())


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
    """A well mixed signed 64-bit seed (splitmix64), so that neighbours share no noise."""
    mixed = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK_64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK_64
    mixed ^= mixed >> 31
    return mixed - (1 << 63)
