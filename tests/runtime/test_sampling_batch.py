"""Many rows at once: each as if it were alone, on its device, with all that changes its logits."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from device_crossings import META, Crossings
from sampling_rows import MEMORY, PLAIN, picks_of, sampled_row
from torch import Tensor

from runtime.engine.adjusted_logits import prepare_changes
from runtime.engine.host_memory import HostMemory
from runtime.engine.sampled_row import SampledRow, TokenHistory
from runtime.engine.sampling_batch import SamplingBatch
from runtime.protocol.data import Sampling

GREEDY = replace(PLAIN, temperature=0.0)
LOGITS_V = torch.tensor([0.0, 2.0, 1.0, -1.0, 1.5])


def history_of(sampling: Sampling, *token_ids: int) -> TokenHistory:
    history = TokenHistory(sampling)
    for token_id in token_ids:
        history.add(token_id)
    return history


def adjusted(logits_BV: Tensor, rows: list[SampledRow]) -> Tensor:
    parcel = MEMORY.parcel()
    changes = prepare_changes(rows, logits_BV.shape[-1], parcel)
    parcel.send()
    choices_BV = logits_BV.clone()
    for change in changes:
        change(choices_BV)
    return choices_BV


def adjusted_alone(row: SampledRow) -> list[float]:
    found: list[float] = adjusted(LOGITS_V[None], [row])[0].tolist()
    return found


def test_presence_is_subtracted_once_and_frequency_each_time() -> None:
    sampling = replace(PLAIN, presence_penalty=0.5, frequency_penalty=0.25, emitted_ids=(2,))
    row = replace(sampled_row(sampling), history=history_of(sampling, 1, 1, 3))
    assert adjusted_alone(row) == [0.0, 1.0, 0.25, -1.75, 1.5]


def test_repetition_counts_the_prompt_and_lowers_logits_on_either_side_of_zero() -> None:
    sampling = replace(PLAIN, repetition_penalty=2.0, prompt_ids=(3, 4))
    row = replace(sampled_row(sampling), history=history_of(sampling, 1))
    assert adjusted_alone(row) == [0.0, 1.0, 1.0, -2.0, 0.75]


def test_a_history_longer_than_its_first_room_counts_every_token() -> None:
    sampling = replace(PLAIN, frequency_penalty=1.0)
    history = history_of(sampling, *range(500), *range(0, 500, 2))
    assert history.ids.tolist() == list(range(500))
    assert history.counts.tolist() == [2.0, 1.0] * 250


def test_biases_are_added_and_the_logits_of_the_model_stay_as_they_are() -> None:
    sampling = replace(PLAIN, logit_bias=((0, 5.0), (1, -100.0), (0, 1.0)))
    before = LOGITS_V.clone()
    assert adjusted_alone(sampled_row(sampling)) == [6.0, -98.0, 1.0, -1.0, 1.5]
    assert (before == LOGITS_V).all()


def test_ids_outside_the_vocabulary_change_no_row() -> None:
    outside = (5, 6, 4_000_000)
    sampling = replace(
        GREEDY,
        logit_bias=tuple((token_id, 100.0) for token_id in outside),
        repetition_penalty=3.0,
        frequency_penalty=2.0,
        prompt_ids=outside,
        emitted_ids=outside,
    )
    rows = [sampled_row(sampling), sampled_row(replace(GREEDY, logit_bias=((0, 0.5),)))]
    found_BV = adjusted(LOGITS_V.expand(2, -1), rows)
    assert found_BV[0].tolist() == LOGITS_V.tolist()
    assert found_BV[1].tolist() == [0.5, *LOGITS_V[1:].tolist()]


def mask_of(vocab_size: int, *token_ids: int) -> np.ndarray:
    may_come = np.zeros(-(-vocab_size // 32) * 32, dtype=bool)
    may_come[list(token_ids)] = True
    return np.packbits(may_come, bitorder="little")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_tokens_that_a_grammar_allows_come_whatever_their_bias(temperature: float) -> None:
    sampling = replace(PLAIN, temperature=temperature, logit_bias=((1, 100.0),))
    rows = [
        SampledRow(sampling=sampling, position=position, allowed=mask_of(5, 0, 3))
        for position in range(200)
    ]
    picks = picks_of(LOGITS_V.expand(200, -1), rows)
    assert {pick.token_id for pick in picks} == ({0} if temperature == 0 else {0, 3})
    assert len(picks) == len(rows)


def test_logprobs_are_those_of_the_model_and_the_most_likely_come_first() -> None:
    sampling = replace(GREEDY, logprobs=3, logit_bias=((2, 50.0),))
    (pick,) = picks_of(LOGITS_V[None], [sampled_row(sampling)])
    expected = LOGITS_V.log_softmax(-1).tolist()
    assert pick.token_id == 2
    assert pick.logprobs is not None
    assert pick.logprobs.token == expected[2]
    assert pick.logprobs.most_likely == ((1, expected[1]), (4, expected[4]), (2, expected[2]))


def test_each_row_tells_as_many_alternatives_as_it_was_asked_for() -> None:
    counts = [None, 0, 2, 5, 20]
    rows = [sampled_row(replace(GREEDY, logprobs=count)) for count in counts]
    told = [pick.logprobs for pick in picks_of(LOGITS_V.expand(5, -1), rows)]
    assert told[0] is None
    assert [len(each.most_likely) for each in told if each is not None] == [0, 2, 5, 5]


def test_of_equally_likely_alternatives_the_lower_ids_come_first() -> None:
    (pick,) = picks_of(torch.zeros(1, 50), [sampled_row(replace(GREEDY, logprobs=4))])
    assert pick.logprobs is not None
    assert [token_id for token_id, _ in pick.logprobs.most_likely] == [0, 1, 2, 3]


def rows_of_every_kind(vocab_size: int) -> list[SampledRow]:
    """Rows with every combination of limits, some of them penalised, biased or in a grammar."""
    choose = random.Random(7)
    rows = []
    for number in range(40):
        sampling = Sampling(
            temperature=choose.choice([0.0, 0.3, 1.0, 1.0, 1.7]),
            top_p=choose.choice([0.5, 0.9, 1.0, 1.0]),
            top_k=choose.choice([0, 0, 1, 20, 200]),
            min_p=choose.choice([0.0, 0.0, 0.02]),
            seed=choose.randrange(2**64),
            max_tokens=1,
            logprobs=choose.choice([None, None, 0, 1, 5]),
            repetition_penalty=choose.choice([1.0, 1.0, 1.3]),
            frequency_penalty=choose.choice([0.0, 0.0, 0.5]),
            logit_bias=choose.choice([(), (), ((3, 2.0), (40, -100.0))]),
            prompt_ids=tuple(choose.randrange(vocab_size) for _ in range(number)),
            emitted_ids=tuple(choose.randrange(vocab_size) for _ in range(number)),
        )
        row = sampled_row(sampling, position=choose.randrange(1000))
        if number % 5 == 0:
            allowed = choose.sample(range(vocab_size), vocab_size // 2)
            row = replace(row, allowed=mask_of(vocab_size, *allowed))
        rows.append(row)
    return rows


def logits_of(rows: int, vocab_size: int) -> Tensor:
    """Of few digits, as those of a model in bfloat16 are, so that many are equal."""
    generator = torch.Generator().manual_seed(11)
    return (torch.randn(rows, vocab_size, generator=generator) * 4).bfloat16().float()


@pytest.mark.parametrize("vocab_size", [300, 70_000])
def test_a_row_gets_the_same_token_alone_and_among_any_others_in_any_order(
    vocab_size: int,
) -> None:
    rows = rows_of_every_kind(vocab_size)
    logits_RV = logits_of(len(rows), vocab_size)
    alone = [picks_of(logits_RV[place, None], [row])[0] for place, row in enumerate(rows)]
    choose = random.Random(3)
    for count in (len(rows), 2, 7, 23):
        places = choose.sample(range(len(rows)), count)
        together = picks_of(logits_RV[places], [rows[place] for place in places])
        assert together == [alone[place] for place in places]


def test_a_block_of_many_rows_picks_as_single_rows_do() -> None:
    """On a GPU many rows of a large vocabulary are sampled at once."""
    rows = rows_of_every_kind(5000)
    logits_RV = logits_of(len(rows), 5000)
    batches = [SamplingBatch(rows, block_logits=most) for most in (1, 5000 * len(rows))]
    single, whole = [batch.sample(logits_RV, MEMORY) for batch in batches]
    assert single == whole


def test_all_rows_are_sampled_with_one_copy_to_the_device_and_one_back() -> None:
    rows = rows_of_every_kind(300)
    logits_RV = torch.empty(len(rows), 300, device=META)
    with Crossings() as crossings:
        picks = SamplingBatch(rows).sample(logits_RV, HostMemory(META, pinned=None))
    assert [where for where, _ in crossings.seen] == ["to the device", "to the host"]
    assert len(picks) == len(rows)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_row_that_is_no_numbers_is_not_valid_and_spoils_no_other(broken: float) -> None:
    rows = rows_of_every_kind(300)
    logits_RV = logits_of(len(rows), 300)
    whole = picks_of(logits_RV, rows)
    for place in range(0, len(rows), 2):
        logits_RV[place, place] = broken
    picks = SamplingBatch(rows).sample(logits_RV, MEMORY)
    assert [pick is not None for pick in picks] == [place % 2 == 1 for place in range(len(rows))]
    assert picks[1::2] == whole[1::2]


@pytest.mark.parametrize("limits", [{}, {"top_k": 3}, {"top_p": 0.9}, {"temperature": 0.0}])
def test_a_row_in_which_nothing_may_come_is_not_valid(limits: dict[str, float]) -> None:
    sampling = replace(PLAIN, **limits)
    row = SampledRow(sampling=sampling, position=0, allowed=mask_of(5))
    assert SamplingBatch([row]).sample(LOGITS_V[None], MEMORY) == [None]
