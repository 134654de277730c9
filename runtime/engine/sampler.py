"""Draws tokens from rows of logits, on the device they are on and without a wait for the host.

A token depends on its row, its parameters and (seed, position) alone: all that is added up over the
vocabulary is a sum of integers, and all else is done element by element, so the other rows of the
batch change nothing.

Legend: B rows, V vocabulary, K the most that are kept, or alternatives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.top_tokens import first_ids, keep_first, order_keys

# weights are added up in units of 2^-40 of the most probable token's, which int64 holds for 2^22
_WEIGHT_UNITS = 2.0**40


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawParameters:
    """How tokens are drawn from B rows, as tensors on the device of the logits.

    `temperature_B` (above 0) and `min_p_B` are float32, `top_k_B` int64, `top_p_B` float64; None:
    off for all rows. `most_kept`: the largest of `top_k_B`. `noise_keys_B2`: int32, made from
    (seed, position).
    """

    temperature_B: Tensor
    noise_keys_B2: Tensor
    min_p_B: Tensor | None = None
    top_k_B: Tensor | None = None
    top_p_B: Tensor | None = None
    most_kept: int = 0


def draw(logits_BV: Tensor, parameters: DrawParameters, *, id_bits_V: Tensor) -> Tensor:
    """Token ids [B], int64, of float32 `logits_BV`; `id_bits_V` are those of `spread_ids`.

    Scales by the temperature, keeps tokens at least `min_p` times as probable as the most probable,
    of them the `top_k` largest, of them the smallest set of probability `top_p`; of equal logits
    the lower ids first. Draws from what is left by an exponential race: the time of a token is
    Exp(1) noise over its weight, and the earliest wins.
    """
    gaps = logits_BV.amax(-1, keepdim=True) - logits_BV
    ids_BK, id_bits = None, id_bits_V
    if parameters.top_k_B is not None:
        ids_BK = first_ids(gaps, parameters.most_kept)
        places_K = torch.arange(parameters.most_kept, device=gaps.device)
        gaps = gaps.gather(1, ids_BK)
        gaps = gaps.masked_fill_(places_K >= parameters.top_k_B[:, None], torch.inf)
        id_bits = id_bits_V[ids_BK]
    weights = (gaps / -parameters.temperature_B[:, None]).exp_()  # 1 for the most probable
    if parameters.min_p_B is not None:
        weights *= weights >= parameters.min_p_B[:, None]
    if parameters.top_p_B is not None:
        amounts = (weights * _WEIGHT_UNITS).to(torch.int64)
        wanted_B = (amounts.sum(-1) * parameters.top_p_B).ceil_().clamp_(min=1).to(torch.int64)
        weights *= keep_first(order_keys(gaps), amounts, wanted_B)
    places_B1 = (weights / _exponential(parameters.noise_keys_B2, id_bits)).argmax(-1, keepdim=True)
    return (places_B1 if ids_BK is None else ids_BK.gather(1, places_B1))[:, 0]


def spread_ids(vocab_size: int, device: torch.device) -> Tensor:
    """int32 bits of token ids 0 to `vocab_size` - 1, mixed, for the noise of any row."""
    return _mixed(torch.arange(vocab_size, dtype=torch.int32, device=device), 0)


def _exponential(keys_B2: Tensor, id_bits: Tensor) -> Tensor:
    """Exp(1) noise, float32, a row for each key: a counter-based generator with ids as counters.

    Each number is of 31 bits, so the smallest is 2^-32; none is 0 or infinite.
    """
    bits = _mixed(id_bits ^ keys_B2[:, :1], keys_B2[:, 1:])
    uniform = bits.bitwise_and_(0x7FFFFFFF).to(torch.float32)
    # the factor is a little below 2^-31, so that the largest stays below 1
    return uniform.add_(0.5).mul_(-(2.0**-31 - 2.0**-54)).log1p_().neg_()


def _mixed(bits: Tensor, key: Tensor | int) -> Tensor:
    """int32 `bits`, overwritten, as an integer hash ("lowbias32") spreads them."""
    bits ^= (bits >> 16).bitwise_and_(0xFFFF)
    bits *= 0x7FEB352D
    bits ^= (bits >> 15).bitwise_and_(0x1FFFF)
    bits ^= key
    bits *= 0x846CA68B - (1 << 32)
    bits ^= (bits >> 16).bitwise_and_(0xFFFF)
    return bits


def logprobs_of(logits_BV: Tensor, token_ids_B: Tensor, *, count: int) -> tuple[Tensor, Tensor]:
    """Ids [B, 1 + K] int64 and logprobs float32: the token's own, then the K = `count` largest.

    Of the model's own distribution: without temperature, penalties and what else is applied. Of
    equal ones the lower ids come first.
    """
    logprobs_BV = logits_BV.log_softmax(-1)
    most_likely_BK = first_ids(logprobs_BV, min(count, logits_BV.shape[-1]))
    ids = torch.cat([token_ids_B[:, None], most_likely_BK], dim=1)
    return ids, logprobs_BV.gather(1, ids)
