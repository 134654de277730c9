"""Which tokens are drawn, and how often, against transformers' processors of logits."""

from dataclasses import replace

import pytest
import torch
from sampling_rows import PLAIN, draws, picks_of, sampled_row
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from runtime.coordinator.sampling import seed_of_choice
from runtime.engine.noise import mixed
from runtime.protocol.data import Sampling

LOGITS_V = torch.tensor([0.0, 2.0, 1.0, -1.0, 1.5])


def tokens(sampling: Sampling, *, count: int) -> list[int]:
    return draws(LOGITS_V, sampling, count=count)


def test_temperature_zero_takes_the_largest_logit() -> None:
    assert set(tokens(replace(PLAIN, temperature=0.0), count=5)) == {1}


def test_the_same_seed_and_position_draw_the_same_token() -> None:
    assert tokens(PLAIN, count=50) == tokens(PLAIN, count=50)


def test_a_seed_draws_the_same_tokens_on_every_node_and_in_every_release() -> None:
    """Of equal logits only the noise decides; a request may go on at a node of another version."""
    drawn = draws(torch.zeros(128_256), PLAIN, count=6)
    assert drawn == [38547, 30191, 88601, 98622, 22067, 19845]


def test_another_seed_draws_other_tokens() -> None:
    assert tokens(PLAIN, count=50) != tokens(replace(PLAIN, seed=2), count=50)


def test_the_largest_seed_the_wire_carries_is_accepted() -> None:
    assert len(tokens(replace(PLAIN, seed=2**64 - 1), count=3)) == 3


def test_choices_of_a_request_share_no_noise_at_any_position() -> None:
    numbers = [
        mixed(seed_of_choice(seed, choice), position)
        for seed in (0, 1, 2**64 - 1)
        for choice in range(8)
        for position in range(100)
    ]
    assert len(set(numbers)) == len(numbers)


def chi_square_probability(observed_N: Tensor, expected_N: Tensor) -> float:
    """How probable counts this far from the expected ones are; rare bins are taken together."""
    is_rare_N = expected_N < 5
    observed = torch.cat([observed_N[~is_rare_N], observed_N[is_rare_N].sum()[None]]).double()
    expected = torch.cat([expected_N[~is_rare_N], expected_N[is_rare_N].sum()[None]]).double()
    observed, expected = observed[expected > 0.01], expected[expected > 0.01]
    if len(expected) < 2:
        return 1.0
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc((torch.tensor(len(expected)) - 1) / 2, statistic / 2))


COMBINATIONS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 10},
    {"top_p": 0.9},
    {"top_p": 0.3, "temperature": 1.7},
    {"min_p": 0.1},
    {"top_k": 25, "top_p": 0.8},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.02},
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.8, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2},
]


@pytest.mark.parametrize("asked", COMBINATIONS, ids=str)
@pytest.mark.parametrize(("vocab_size", "count"), [(60, 10_000), (3000, 2000)])
def test_frequencies_are_those_of_transformers_processors(
    asked: dict[str, float], vocab_size: int, count: int
) -> None:
    prompt = (3, 5, 7, 7, 20)
    sampling = replace(PLAIN, seed=vocab_size, prompt_ids=prompt, **asked)
    logits_V = torch.randn(vocab_size, generator=torch.Generator().manual_seed(4)) * 2
    processors = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty),
            TemperatureLogitsWarper(sampling.temperature),
        ]
    )
    if sampling.min_p:
        processors.append(MinPLogitsWarper(sampling.min_p))
    if sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    expected_V = processors(torch.tensor([prompt]), logits_V[None])[0].double().softmax(-1)
    drawn_V = torch.bincount(
        torch.tensor(draws(logits_V, sampling, count=count)), minlength=vocab_size
    )
    assert not drawn_V[expected_V == 0].any(), "a token was drawn that is not to be kept"
    # with many tokens neighbours are taken together, so that all bins are full
    bins = -(-vocab_size // 60)
    observed, expected = drawn_V.view(-1, bins).sum(1), expected_V.view(-1, bins).sum(1) * count
    assert chi_square_probability(observed, expected) > 1e-4


def test_noise_of_neighbouring_positions_and_tokens_is_independent() -> None:
    """Pairs of draws from equal logits, a few positions apart, fill their square evenly."""
    drawn = torch.tensor(draws(torch.zeros(16), PLAIN, count=20_000))
    for distance in (1, 2, 3, 16):
        pairs = drawn[:-distance] * 16 + drawn[distance:]
        counts = torch.bincount(pairs, minlength=256)
        expected = torch.full((256,), len(pairs) / 256)
        assert chi_square_probability(counts, expected) > 1e-4
    seeds = [sampled_row(replace(PLAIN, seed=seed)) for seed in range(20_000)]
    picks = picks_of(torch.zeros(1, 16).expand(20_000, -1), seeds)
    counts = torch.bincount(torch.tensor([pick.token_id for pick in picks]), minlength=16)
    assert chi_square_probability(counts, torch.full((16,), 1250.0)) > 1e-4


def test_top_k_keeps_the_k_largest() -> None:
    assert set(tokens(replace(PLAIN, top_k=2, temperature=5.0), count=200)) == {1, 4}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    # softmax: 0.48, 0.29, 0.18, ... for tokens 1, 4, 2
    assert set(tokens(replace(PLAIN, top_p=0.5), count=300)) == {1, 4}
    assert set(tokens(replace(PLAIN, top_p=0.8), count=300)) == {1, 2, 4}


def test_top_p_of_almost_nothing_is_greedy() -> None:
    assert set(tokens(replace(PLAIN, top_p=1e-9), count=50)) == {1}
    assert set(tokens(replace(PLAIN, top_p=0.0), count=50)) == {1}


def test_a_top_k_beyond_the_vocabulary_changes_nothing() -> None:
    assert tokens(PLAIN, count=50) == tokens(replace(PLAIN, top_k=500), count=50)


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest() -> None:
    # relative to the likeliest: 1, 0.61, 0.37, 0.14, 0.05
    assert set(tokens(replace(PLAIN, min_p=0.5, temperature=1.0), count=300)) == {1, 4}
    assert set(tokens(replace(PLAIN, min_p=0.3, temperature=1.0), count=300)) == {1, 2, 4}
    assert set(tokens(replace(PLAIN, min_p=1.0), count=50)) == {1}


def test_of_equal_logits_the_lower_ids_are_kept() -> None:
    logits_V = torch.tensor([1.0, 3.0, 3.0, 3.0, 2.0, 3.0])
    assert set(draws(logits_V, replace(PLAIN, temperature=0.0), count=3)) == {1}
    assert set(draws(logits_V, replace(PLAIN, top_k=1), count=50)) == {1}
    assert set(draws(logits_V, replace(PLAIN, top_k=3), count=200)) == {1, 2, 3}
    flat_V = torch.zeros(10)
    assert set(draws(flat_V, replace(PLAIN, top_p=0.55), count=300)) == set(range(6))
    both = replace(PLAIN, top_k=5, top_p=0.5)
    assert set(draws(flat_V, both, count=300)) == {0, 1, 2}


@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 100.0])
def test_extreme_temperatures_draw_from_the_softmax(temperature: float) -> None:
    drawn = tokens(replace(PLAIN, temperature=temperature), count=3000)
    counts = torch.bincount(torch.tensor(drawn), minlength=5)
    expected = (LOGITS_V.double() / temperature).softmax(-1) * 3000
    assert not counts[expected == 0].any()
    assert chi_square_probability(counts, expected) > 1e-4
