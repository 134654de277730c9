from dataclasses import replace

import pytest
import torch

from runtime.engine.sampler import TokenHistory, adjusted, logprobs_of, sample
from runtime.protocol.routes import Sampling

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


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest() -> None:
    # relative to the likeliest: 1, 0.61, 0.37, 0.14, 0.05
    assert set(draws(replace(PLAIN, min_p=0.5, temperature=1.0), count=300)) == {1, 4}
    assert set(draws(replace(PLAIN, min_p=0.3, temperature=1.0), count=300)) == {1, 2, 4}
    assert set(draws(replace(PLAIN, min_p=1.0), count=50)) == {1}


def history_of(sampling: Sampling, *token_ids: int) -> TokenHistory:
    history = TokenHistory(sampling)
    for token_id in token_ids:
        history.add(token_id)
    return history


def test_presence_is_taken_off_once_and_frequency_each_time() -> None:
    sampling = replace(PLAIN, presence_penalty=0.5, frequency_penalty=0.25, emitted_ids=(2,))
    changed = adjusted(LOGITS_V, sampling, history_of(sampling, 1, 1, 3))
    assert changed.tolist() == [0.0, 1.0, 0.25, -1.75, 1.5]


def test_repetition_counts_the_prompt_and_brings_logits_down_on_either_side_of_zero() -> None:
    sampling = replace(PLAIN, repetition_penalty=2.0, prompt_ids=(3, 4))
    changed = adjusted(LOGITS_V, sampling, history_of(sampling, 1))
    assert changed.tolist() == [0.0, 1.0, 1.0, -2.0, 0.75]


def test_biases_are_added_and_the_models_logits_stay_as_they_are() -> None:
    sampling = replace(PLAIN, logit_bias=((0, 5.0), (1, -100.0)))
    before = LOGITS_V.clone()
    changed = adjusted(LOGITS_V, sampling, None)
    assert changed.tolist() == [5.0, -98.0, 1.0, -1.0, 1.5]
    assert (before == LOGITS_V).all()
    assert adjusted(LOGITS_V, PLAIN, None) is LOGITS_V


def test_logprobs_are_of_the_model_and_the_likeliest_come_first() -> None:
    told = logprobs_of(LOGITS_V, 2, count=3)
    expected = LOGITS_V.log_softmax(-1).tolist()
    assert told.token == pytest.approx(expected[2])
    assert [token_id for token_id, _ in told.most_likely] == [1, 4, 2]
    assert [logprob for _, logprob in told.most_likely] == pytest.approx(
        [expected[1], expected[4], expected[2]]
    )
    assert logprobs_of(LOGITS_V, 2, count=0).most_likely == ()
