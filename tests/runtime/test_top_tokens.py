"""The radix select of top-k and top-p against a sort."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from runtime.engine.top_tokens import keep_first, order_keys

# few values, so that there are ties, and values of every size
gaps = st.sampled_from([0.0, 1.5, 1.5000001, 2.0, 7.25, 3e-39, 1e-7, 1e30, float("inf")])


@given(
    gaps_V=st.lists(st.one_of(gaps, st.floats(0, 50, width=32)), min_size=1, max_size=60),
    part=st.floats(0, 1.2),
    use_counts=st.booleans(),
)
def test_what_is_kept_is_the_shortest_beginning_of_the_sorted_row_that_reaches_the_amount(
    gaps_V: list[float], part: float, use_counts: bool
) -> None:
    row_V = torch.tensor(gaps_V, dtype=torch.float32)
    other_V = torch.flip(row_V, [0])
    gaps_BV = torch.stack([row_V, other_V])
    amounts_BV = (torch.exp(-gaps_BV) * 2.0**40).to(torch.int64)
    if use_counts:
        amounts_BV = torch.ones_like(amounts_BV)
    wanted_B = (amounts_BV.sum(-1) * part).to(torch.int64).clamp_(min=1)
    kept_BV = keep_first(order_keys(gaps_BV), amounts_BV, wanted_B)
    for gap_V, amount_V, wanted, kept_V in zip(
        gaps_BV, amounts_BV, wanted_B.tolist(), kept_BV, strict=True
    ):
        expected_V = kept_by_a_sort(gap_V, amount_V, wanted)
        # what weighs nothing behind the last token that does is kept or not alike
        weighs_V = amount_V > 0
        assert kept_V[weighs_V].tolist() == expected_V[weighs_V].tolist()


def kept_by_a_sort(gaps_V: Tensor, amounts_V: Tensor, wanted: int) -> Tensor:
    order = np.argsort(gaps_V.numpy(), kind="stable")
    sorted_amounts = amounts_V.numpy()[order]
    kept_V = np.zeros(len(order), dtype=bool)
    kept_V[order[np.cumsum(sorted_amounts) - sorted_amounts < wanted]] = True
    return torch.from_numpy(kept_V)


@pytest.mark.parametrize("vocab_size", [300, 5000, 40_000, 70_000, 300_000])
@pytest.mark.parametrize("are_rounded", [False, True])
def test_vocabularies_of_every_size_are_cut_where_a_sort_cuts_them(
    vocab_size: int, are_rounded: bool
) -> None:
    logits_V = torch.randn(vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * 3
    if are_rounded:  # as those of a model in bfloat16, of which many are equal
        logits_V = logits_V.bfloat16().float()
    gaps_V = logits_V.max() - logits_V
    amounts_V = (torch.exp(-gaps_V) * 2.0**40).to(torch.int64)
    for part in (0.1, 0.5, 0.9, 0.99):
        wanted = int(amounts_V.sum() * part)
        kept_BV = keep_first(order_keys(gaps_V[None]), amounts_V[None], torch.tensor([wanted]))
        assert torch.equal(kept_BV[0], kept_by_a_sort(gaps_V, amounts_V, wanted))


def test_keys_of_what_is_no_number_are_in_range() -> None:
    keys = order_keys(torch.tensor([[float("nan"), -float("nan"), -float("inf"), float("inf")]]))
    assert (keys >= 0).all()
    amounts = torch.full_like(keys, torch.iinfo(torch.int64).min, dtype=torch.int64)
    assert keep_first(keys, amounts, torch.tensor([1])).shape == keys.shape
