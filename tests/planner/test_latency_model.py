"""p1..p8 are found again in timings made from them; more work never takes less time."""

import random

import pytest

from planner.latency_fit import CannotFit, Timing, errors_of, fit_latency_model

PREFILL = (2e-6, 1e-3, 5e-6, 4e-3)
DECODE = (1e-7, 2e-4, 1e-6, 1.2e-2)
BATCHES, LENGTHS = (1, 2, 4, 8, 16), (16, 128, 512, 1024)


def seconds(terms: tuple[float, float, float, float], batch: int, tokens: int) -> float:
    return terms[0] * batch * tokens + terms[1] * batch + terms[2] * tokens + terms[3]


def sweep(terms: tuple[float, float, float, float], *, noise: float, seed: int) -> list[Timing]:
    chance = random.Random(seed)
    return [
        Timing(
            batch=batch,
            tokens=tokens,
            seconds=seconds(terms, batch, tokens) * (1 + chance.uniform(-noise, noise)),
        )
        for batch in BATCHES
        for tokens in LENGTHS
    ]


def test_the_parameters_of_exact_timings_are_found() -> None:
    model = fit_latency_model(sweep(PREFILL, noise=0, seed=1), sweep(DECODE, noise=0, seed=2))
    assert model.prefill.parameters == pytest.approx(PREFILL, rel=1e-6)
    assert model.decode.parameters == pytest.approx(DECODE, rel=1e-6)
    assert model.prefill.median_error == pytest.approx(0, abs=1e-9)
    assert model.decode.points == len(BATCHES) * len(LENGTHS)


@pytest.mark.parametrize("seed", range(5))
def test_batches_that_were_held_out_of_noisy_timings_are_predicted(seed: int) -> None:
    seen = fit_latency_model(
        sweep(PREFILL, noise=0.1, seed=seed), sweep(DECODE, noise=0.1, seed=seed + 100)
    )
    held_out = [
        Timing(batch=b, tokens=t, seconds=seconds(DECODE, b, t)) for b, t in ((3, 300), (12, 700))
    ]
    assert max(errors_of(seen.decode, held_out)) < 0.1
    for found, true, error in zip(
        seen.decode.parameters, DECODE, seen.decode.standard_errors or (), strict=True
    ):
        assert found == 0 or abs(found - true) < 5 * error  # at its bound nothing is known of it


def test_no_parameter_is_negative_where_longer_prompts_were_measured_to_be_quicker() -> None:
    odd = [
        Timing(batch=b, tokens=t, seconds=0.01 * b + 0.02 - 1e-5 * t)
        for b in BATCHES
        for t in LENGTHS
    ]
    model = fit_latency_model(odd, odd)
    assert min(model.prefill.parameters) >= 0
    times = [model.prefill_s(batch=4, input_tokens=t) for t in (1, 1000, 100_000)]
    assert times == sorted(times)


def test_a_decode_is_the_sum_of_its_iterations() -> None:
    model = fit_latency_model(sweep(PREFILL, noise=0, seed=1), sweep(DECODE, noise=0, seed=2))
    summed = sum(model.decode_step_s(batch=6, context_tokens=50 + k) for k in range(1, 21))
    assert model.decode_s(batch=6, input_tokens=50, output_tokens=20) == pytest.approx(summed)
    assert model.batch_s(batch=6, input_tokens=50, output_tokens=20) == pytest.approx(
        summed + model.prefill_s(batch=6, input_tokens=50)
    )


@pytest.mark.parametrize(
    ("timings", "words"),
    [
        ([], "0 decode timings"),
        ([Timing(batch=1, tokens=t, seconds=1) for t in (1, 2, 3, 4)], "of 1 batch sizes"),
        ([Timing(batch=b, tokens=9, seconds=1) for b in (1, 2, 3, 4)], "and 1 lengths"),
    ],
)
def test_a_sweep_that_says_too_little_is_refused(timings: list[Timing], words: str) -> None:
    with pytest.raises(CannotFit, match=words):
        fit_latency_model(sweep(PREFILL, noise=0, seed=1), timings)


@pytest.mark.parametrize(("batch", "tokens", "took_s"), [(0, 1, 1.0), (1, -1, 1.0), (1, 1, 0.0)])
def test_a_timing_that_cannot_be_is_refused(batch: int, tokens: int, took_s: float) -> None:
    with pytest.raises(CannotFit, match="took some finite time"):
        Timing(batch=batch, tokens=tokens, seconds=took_s)


def test_engines_whose_steps_jump_at_two_requests_are_fitted_with_the_term_the_paper_lacks() -> (
    None
):
    def timing(batch: int, tokens: int) -> Timing:
        jump_s = 0.003 if batch > 1 else 0.0
        seconds = 1e-6 * batch * tokens + 2e-4 * batch + 0.004 + jump_s
        return Timing(batch=batch, tokens=tokens, seconds=seconds)

    seen = [timing(batch, tokens) for batch in (1, 2, 4, 8) for tokens in (16, 256)]
    held_out = [timing(batch, 64) for batch in (1, 3, 6)]
    paper = fit_latency_model(seen, seen).decode
    extended = fit_latency_model(seen, seen, extended=True).decode
    assert extended.several_s == pytest.approx(0.003, rel=1e-6)
    assert paper.several_s == 0
    assert max(errors_of(extended, held_out)) < 1e-6
    assert max(errors_of(paper, held_out)) > 0.1
    assert fit_latency_model(seen, seen, extended=True).prefill.several_s == 0
