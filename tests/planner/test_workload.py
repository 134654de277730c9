"""Workloads: lengths like the published trace's, arrivals of a rate, errors that name rows."""

import itertools
import math

import numpy as np
import pytest

from planner.workload.arrivals import (
    TRACE_BIN_S,
    bursts,
    counts_from_csv,
    like_counts,
    poisson,
    rate_at_share_of_peak,
    requests,
)
from planner.workload.lengths import drawn_lengths, lengths_from_csv, published_lengths
from planner.workload.request import InvalidWorkload, Lengths, Request


def tokens_of(lengths):
    return np.array([(pair.prompt_tokens, pair.output_tokens) for pair in lengths])


def written(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_generated_lengths_have_the_published_statistics():
    prompt, output = tokens_of(itertools.islice(published_lengths(7), 40_000)).T
    assert prompt.mean() == pytest.approx(763, rel=0.02)
    assert output.mean() == pytest.approx(232, rel=0.02)
    assert np.corrcoef(prompt, output)[0, 1] == pytest.approx(0.51, abs=0.02)
    # Percentiles 5, 25, 50, 75, 95 and 99 of the Azure conversation trace.
    shares = [5, 25, 50, 75, 95, 99]
    expected_prompt = [181, 391, 947, 1094, 1353, 1911]
    expected_output = [52, 92, 157, 397, 463, 608]
    assert np.percentile(prompt, shares) == pytest.approx(expected_prompt, rel=0.05)
    assert np.percentile(output, shares) == pytest.approx(expected_output, rel=0.05)
    assert prompt.max() <= 2047
    assert output.max() <= 1000


def test_generated_lengths_depend_on_nothing_but_the_seed():
    first, again, other = (
        list(itertools.islice(published_lengths(seed), 50)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_lengths_of_a_trace_are_its_rows_in_order(tmp_path):
    path = written(tmp_path, "input_len,output_len\n374,44\n91,16\n")
    assert lengths_from_csv(path) == (
        Lengths(prompt_tokens=374, output_tokens=44),
        Lengths(prompt_tokens=91, output_tokens=16),
    )


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("-3,44", "row 3: input_len is -3"),
        ("0,44", "row 3: input_len is 0"),
        ("12,", "row 3: output_len is missing"),
        ("12", "row 3: output_len is missing"),
        ("12,many", "row 3: output_len is 'many'"),
        ("4000,100", "row 3: 4000 prompt and 100 output tokens are more than the context of 4096"),
    ],
)
def test_a_bad_row_of_a_trace_is_named(tmp_path, row, complaint):
    path = written(tmp_path, f"input_len,output_len\n374,44\n{row}\n91,16\n")
    with pytest.raises(InvalidWorkload, match=complaint):
        lengths_from_csv(path, context_tokens=4096)


def test_a_trace_without_the_column_or_rows_is_refused(tmp_path):
    with pytest.raises(InvalidWorkload, match="no column 'output_len'"):
        lengths_from_csv(written(tmp_path, "input_len,out\n1,2\n"))
    with pytest.raises(InvalidWorkload, match="no requests"):
        lengths_from_csv(written(tmp_path, "input_len,output_len\n"))
    with pytest.raises(InvalidWorkload, match="row 2: arrivals is -1"):
        counts_from_csv(written(tmp_path, "interval_idx_3s,arrivals\n0,-1\n"))
    with pytest.raises(InvalidWorkload, match="no arrivals"):
        counts_from_csv(written(tmp_path, "interval_idx_3s,arrivals\n0,0\n"))


def test_lengths_are_drawn_from_all_of_a_trace():
    trace = [Lengths(prompt_tokens=tokens, output_tokens=1) for tokens in range(1, 6)]
    drawn = list(itertools.islice(drawn_lengths(trace, seed=3), 500))
    assert set(drawn) == set(trace)


@pytest.mark.parametrize(
    "arrivals",
    [
        lambda: poisson(rate_per_s=2.5, seed=1),
        lambda: bursts(rate_per_s=2.5, size=5, seed=1),
        lambda: like_counts((8, 0, 0, 3, 1), rate_per_s=2.5, seed=1),
    ],
)
def test_arrivals_rise_and_have_the_rate(arrivals):
    times = list(itertools.islice(arrivals(), 20_000))
    assert times == sorted(times)
    assert len(times) / times[-1] == pytest.approx(2.5, rel=0.05)
    assert times == list(itertools.islice(arrivals(), 20_000))


def test_poisson_arrivals_vary_as_such_and_bursts_come_together():
    gaps = np.diff(list(itertools.islice(poisson(rate_per_s=4.0, seed=2), 20_000)))
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    burst = list(itertools.islice(bursts(rate_per_s=4.0, size=3, seed=2), 30))
    assert [len(list(group)) for _, group in itertools.groupby(burst)] == [3] * 10


def test_arrivals_follow_the_counts_of_a_trace():
    counts = (10, 0, 30, 0)
    in_bin = [0] * len(counts)
    for time in itertools.islice(like_counts(counts, rate_per_s=2.0, seed=4), 20_000):
        in_bin[int(time / TRACE_BIN_S) % len(counts)] += 1
    assert in_bin[1] == in_bin[3] == 0
    assert in_bin[2] / in_bin[0] == pytest.approx(3.0, rel=0.1)


def test_the_online_rate_is_a_share_of_the_peak():
    rate = rate_at_share_of_peak(1000.0, share=0.75, mean_tokens_per_request=995.0)
    assert rate == pytest.approx(750 / 995)
    with pytest.raises(InvalidWorkload, match="share is 0"):
        rate_at_share_of_peak(1000.0, share=0.0, mean_tokens_per_request=995.0)


def test_requests_end_with_the_shorter_of_times_and_lengths():
    pair = Lengths(prompt_tokens=5, output_tokens=2)
    assert list(requests(iter([0.5, 1.0]), iter([pair] * 3))) == [
        Request(arrival_s=0.5, lengths=pair),
        Request(arrival_s=1.0, lengths=pair),
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lengths(prompt_tokens=0, output_tokens=1),
        lambda: Request(arrival_s=-1.0, lengths=Lengths(prompt_tokens=1, output_tokens=1)),
        lambda: next(poisson(rate_per_s=0.0, seed=0)),
        lambda: next(poisson(rate_per_s=math.inf, seed=0)),
        lambda: next(like_counts((1, 2), rate_per_s=math.inf, seed=0)),
        lambda: rate_at_share_of_peak(1000.0, share=math.inf, mean_tokens_per_request=995.0),
        lambda: next(bursts(rate_per_s=1.0, size=0, seed=0)),
        lambda: next(like_counts((0, 0), rate_per_s=1.0, seed=0)),
        lambda: next(drawn_lengths((), seed=0)),
    ],
)
def test_what_cannot_be_a_workload_is_refused(make):
    with pytest.raises(InvalidWorkload):
        make()
