import random

import pytest

from planner.domain.layer_times import LayerTimes
from planner.domain.profile import ComputeProfile
from planner.refinement import Busy, refine, refined_profile, refined_times

TIMES = LayerTimes(prompt=((64.0, 0.01),), decode=((1.0, 0.001), (8.0, 0.004)))


def traffic(
    count: int, *, decode: float, prompt: float, age_s: float = 0.0, noise: float = 0.02
) -> list[Busy]:
    """A stage that takes so many times what its profile says."""
    draw = random.Random(1)
    found = []
    for _ in range(count):
        decode_s, prompt_s = draw.uniform(0.2, 1), draw.uniform(0, 1)
        busy_s = (decode * decode_s + prompt * prompt_s) * draw.uniform(1 - noise, 1 + noise)
        found.append(Busy(age_s=age_s, busy_s=busy_s, decode_s=decode_s, prompt_s=prompt_s))
    return found


def test_prompts_and_decodes_are_told_apart_with_error_bars() -> None:
    found = refine(traffic(200, decode=1.3, prompt=0.8))
    assert found is not None
    assert found.decode.factor == pytest.approx(1.3, abs=0.03)
    assert found.prompt.factor == pytest.approx(0.8, abs=0.03)
    assert 0 < found.decode.error < 0.05
    fewer = refine(traffic(20, decode=1.3, prompt=0.8))
    assert fewer is not None
    assert fewer.decode.error > found.decode.error


def test_little_evidence_changes_little_and_none_nothing() -> None:
    few = refine(traffic(1, decode=2.0, prompt=2.0))
    assert few is not None
    assert 1 < few.decode.factor < 1.5
    assert refine([]) is None
    assert refine([Busy(age_s=0, busy_s=0, decode_s=1, prompt_s=0)]) is None


def test_decodes_alone_say_nothing_of_prompts() -> None:
    observed = [
        Busy(age_s=0, busy_s=2 * one.decode_s, decode_s=one.decode_s, prompt_s=0)
        for one in traffic(100, decode=1, prompt=1)
    ]
    found = refine(observed)
    assert found is not None
    assert found.prompt.factor == pytest.approx(1.0)
    assert found.prompt.error > 4 * found.decode.error
    assert found.decode.factor == pytest.approx(2.0, abs=0.15)


def test_what_is_new_counts_more_than_what_was() -> None:
    old = traffic(100, decode=1.0, prompt=1.0, age_s=6000)
    new = traffic(100, decode=1.5, prompt=1.5)
    found = refine(old + new, half_life_s=600)
    assert found is not None
    assert found.decode.factor == pytest.approx(1.5, abs=0.05)
    assert found.observations == pytest.approx(100, rel=0.01)


def test_a_few_wild_observations_do_not_carry_it_away() -> None:
    calm = traffic(100, decode=1.1, prompt=1.1)
    wild = traffic(8, decode=20.0, prompt=20.0)
    found = refine(calm + wild)
    assert found is not None
    assert found.decode.factor == pytest.approx(1.1, abs=0.05)


def test_a_refined_profile_is_slower_by_as_much_as_its_requests_take_longer() -> None:
    found = refine(traffic(2000, decode=2.0, prompt=2.0, noise=0))
    assert found is not None
    profile = ComputeProfile(
        name="n",
        gpu="T4",
        vram_bytes=1e9,
        max_layers=2,
        tokens_per_s=(900.0, 400.0),
        kv_capacity_token_layers=(100.0, 50.0),
        layer_times=TIMES,
    )
    refined = refined_profile(profile, TIMES, found, prompt_tokens=64)
    assert refined.tokens_per_s == pytest.approx((450.0, 200.0), rel=0.02)
    assert refined.kv_capacity_token_layers == profile.kv_capacity_token_layers
    assert refined_times(TIMES, found).decode_s(8) == pytest.approx(0.008, rel=0.02)
