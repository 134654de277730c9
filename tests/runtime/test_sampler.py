from dataclasses import replace

import pytest
import torch

from runtime.engine.sampler import sample
from runtime.protocol.data import Sampling

PLAIN = Sampling(temperature=1.0, top_p=1.0, top_k=0, seed=1, max_tokens=1)
LOGITS_V = torch.tensor([0.0, 2.0, 1.0, -1.0, 1.5])


def draws(sampling: Sampling, *, count: int) -> list[int]:
    return [sample(LOGITS_V, sampling, position=position) for position in range(count)]


def test_temperature_zero_takes_the_largest_logit() -> None:
    assert set(draws(replace(PLAIN, temperature=0.0), count=5)) == {1}


def test_the_same_seed_and_position_draw_the_same_token() -> None:
    assert draws(PLAIN, count=50) == draws(PLAIN, count=50)


def test_another_seed_draws_otherwise() -> None:
    assert draws(PLAIN, count=50) != draws(replace(PLAIN, seed=2), count=50)


def test_the_largest_seed_the_wire_carries_is_accepted() -> None:
    assert len(draws(replace(PLAIN, seed=2**64 - 1), count=3)) == 3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_those_of_the_softmax(temperature: float) -> None:
    count = 6000
    drawn = torch.bincount(
        torch.tensor(draws(replace(PLAIN, temperature=temperature), count=count)), minlength=5
    )
    expected = (LOGITS_V / temperature).softmax(0) * count
    # five standard deviations of a binomial count
    slack = 5 * (expected * (1 - expected / count)).sqrt()
    assert ((drawn - expected).abs() <= slack + 1).all()


def test_top_k_keeps_the_k_largest() -> None:
    assert set(draws(replace(PLAIN, top_k=2, temperature=5.0), count=200)) == {1, 4}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    # softmax: 0.48, 0.29, 0.18, ... for tokens 1, 4, 2
    assert set(draws(replace(PLAIN, top_p=0.5), count=300)) == {1, 4}
    assert set(draws(replace(PLAIN, top_p=0.8), count=300)) == {1, 2, 4}


def test_top_p_of_almost_nothing_is_greedy() -> None:
    assert set(draws(replace(PLAIN, top_p=1e-9), count=50)) == {1}
    assert set(draws(replace(PLAIN, top_p=0.0), count=50)) == {1}


def test_a_top_k_beyond_the_vocabulary_changes_nothing() -> None:
    assert draws(PLAIN, count=50) == draws(replace(PLAIN, top_k=500), count=50)
