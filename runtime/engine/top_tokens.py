"""The first tokens of rows: a given number of them, or as many as reach a given amount.

Of equal ones the lower ids come first. All sums are of integers, so no order of addition changes
what is found, and nothing waits for the device.

Legend: B rows, V tokens, K first tokens, N bins.
"""

import torch
from torch import Tensor

_KEY_BITS = 31
_ID_BITS = 31


def first_ids(gaps_BV: Tensor, count: int) -> Tensor:
    """The ids [B, K], int64, of the `count` smallest of `gaps_BV` (see `order_keys`), in order."""
    ids_V = torch.arange(gaps_BV.shape[-1], device=gaps_BV.device)
    order_BV = order_keys(gaps_BV).to(torch.int64).bitwise_left_shift_(_ID_BITS).bitwise_or_(ids_V)
    return order_BV.topk(count, largest=False).values.bitwise_and_((1 << _ID_BITS) - 1)


def order_keys(gaps_BV: Tensor) -> Tensor:
    """int32 keys in the order of `gaps_BV`, float32 whose sign is left out; NaN comes last."""
    # without a sign, floats are in the order of their bits
    return gaps_BV.abs().view(torch.int32)


def keep_first(keys_BV: Tensor, amounts_BV: Tensor, wanted_B: Tensor) -> Tensor:
    """True for the fewest tokens of a row, in the order of keys, whose amounts reach `wanted_B`.

    A radix select, without a sort. `amounts_BV` and `wanted_B` (at least 1) are int64; amounts are
    at least 0, fall or stay the same as keys rise, are the same for equal keys, and their sums fit.
    Where `wanted_B` is more than there is, all tokens are kept that have an amount.
    """
    missing_B1 = wanted_B[:, None]
    last_B1 = keys_BV.new_zeros(len(keys_BV), 1)
    for bits, shift in _digits(keys_BV.shape[-1]):
        digits_BV = (keys_BV >> shift).bitwise_and_((1 << bits) - 1)
        digit_B1, missing_B1, held_B1 = _reach(digits_BV, amounts_BV, missing_B1, bins=1 << bits)
        last_B1 = (last_B1 << bits) | digit_B1
        if shift:
            amounts_BV = amounts_BV.where(digits_BV == digit_B1, 0)
    # of the tokens that share the last key, which hold equal parts, the first few
    is_last_BV = keys_BV == last_B1
    ranks_BV = is_last_BV.cumsum(-1, dtype=torch.int32)
    each_B1 = (held_B1 // ranks_BV[:, -1:].clamp(min=1)).clamp_(min=1)
    most_B1 = ((missing_B1 + each_B1 - 1) // each_B1).clamp_(max=keys_BV.shape[-1])
    is_last_BV &= ranks_BV <= most_B1.to(torch.int32)
    return is_last_BV.logical_or_(keys_BV < last_B1)


def _digits(vocab_size: int) -> list[tuple[int, int]]:
    """(bits, shift) of the digits of a key, the highest first; no more bins than tokens pay for."""
    most = min(max(vocab_size.bit_length() - 1, 8), 16)
    count = -(-_KEY_BITS // most)
    bits = -(-_KEY_BITS // count)
    shifts = range(bits * (count - 1), -1, -bits)
    return [(min(bits, _KEY_BITS - shift), shift) for shift in shifts]


def _reach(
    digits_BV: Tensor, amounts_BV: Tensor, wanted_B1: Tensor, *, bins: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The digit [B, 1], int32, at which a row's amounts reach `wanted_B1`.

    And [B, 1]: what is missing before that digit, and what the tokens with it hold.
    """
    sums_BN = amounts_BV.new_zeros(len(digits_BV), bins)
    sums_BN.scatter_add_(1, digits_BV.to(torch.int64), amounts_BV).cumsum_(-1)
    digit_B1 = torch.searchsorted(sums_BN, wanted_B1).clamp_(max=bins - 1)
    before_B1 = sums_BN.gather(1, (digit_B1 - 1).clamp_(min=0)) * (digit_B1 > 0)
    held_B1 = sums_BN.gather(1, digit_B1) - before_B1
    return digit_B1.to(torch.int32), wanted_B1 - before_B1, held_B1
