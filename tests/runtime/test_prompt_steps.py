"""Prompts are cut so that they get through a slow link soonest, and not where links are fast."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.prompt_steps import PromptSteps

FIXED_S = 0.036  # decodes and what any step takes
TOKEN_S = 0.00014
ROW_BYTES = 13312
MOST = 512


def known(*, fixed_s: float = FIXED_S, token_s: float = TOKEN_S) -> PromptSteps:
    steps = PromptSteps(least=16, most=MOST)
    for size in (16, 32, 64, 128, 256, 512):
        steps.observe(prompt_tokens=size, step_s=fixed_s + size * token_s)
    return steps


def size_at(bytes_per_s: float, *, prompt_tokens: int = 800) -> int | None:
    return known().size(prompt_tokens=prompt_tokens, stages=3, row_s=ROW_BYTES / bytes_per_s)


def simulated_s(
    size: int, *, prompt_tokens: int, stages: int, row_s: float, fixed_s: float, token_s: float
) -> float:
    """When the last row leaves the last stage, part by part over stages and links in turn."""
    free_s = [0.0] * (2 * stages - 1)
    done = 0
    while done < prompt_tokens:
        part = min(size, prompt_tokens - done)
        done += part
        at_s = 0.0
        for place in range(len(free_s)):
            takes_s = part * row_s if place % 2 else fixed_s + part * token_s
            at_s = free_s[place] = max(at_s, free_s[place]) + takes_s
    return free_s[-1]


def test_steps_grow_with_the_rate_until_prompts_are_not_cut() -> None:
    assert size_at(7.5e6) in (32, 64)
    assert size_at(12.5e6) in (64, 128)
    assert size_at(25e6) in (128, 256)
    assert size_at(1.25e9) is None


def test_nothing_is_cut_before_anything_is_measured_nor_for_less_than_a_step() -> None:
    nothing = PromptSteps(least=16, most=MOST)
    assert nothing.size(prompt_tokens=800, stages=3, row_s=0.001) is None
    nothing.observe(prompt_tokens=0, step_s=0.01)
    assert nothing.size(prompt_tokens=800, stages=3, row_s=0.001) is None
    assert size_at(12.5e6, prompt_tokens=16) is None


@given(
    prompt_tokens=st.integers(1, 4000),
    stages=st.integers(2, 8),
    bytes_per_s=st.floats(1e5, 1e10),
    fixed_s=st.floats(0.0001, 0.2),
    token_s=st.floats(1e-6, 1e-2),
)
def test_a_cut_prompt_is_through_sooner_than_one_in_the_largest_steps(
    prompt_tokens: int, stages: int, bytes_per_s: float, fixed_s: float, token_s: float
) -> None:
    steps = known(fixed_s=fixed_s, token_s=token_s)
    row_s = ROW_BYTES / bytes_per_s
    size = steps.size(prompt_tokens=prompt_tokens, stages=stages, row_s=row_s)
    if size is None:
        return
    takes = {
        which: simulated_s(
            which,
            prompt_tokens=prompt_tokens,
            stages=stages,
            row_s=row_s,
            fixed_s=fixed_s,
            token_s=token_s,
        )
        for which in (size, MOST)
    }
    assert takes[size] <= 1.1 * takes[MOST]
    assert fixed_s + size * token_s <= 1.001 * size * row_s


def test_what_steps_take_is_kept_current() -> None:
    steps = known()
    row_s = ROW_BYTES / 12.5e6
    assert steps.size(prompt_tokens=800, stages=3, row_s=row_s) is not None
    for _ in range(200):  # the machine has become ten times slower
        size = steps.size(prompt_tokens=800, stages=3, row_s=row_s) or MOST
        steps.observe(prompt_tokens=size, step_s=10 * (FIXED_S + size * TOKEN_S))
    assert steps.size(prompt_tokens=800, stages=3, row_s=row_s) is None


def test_small_steps_are_approached_from_large_ones_and_left_alone_where_they_are_too_slow() -> (
    None
):
    """Only steps whose time is known, or of half the tokens, are tried."""
    steps = PromptSteps(least=16, most=MOST)
    tried = [MOST]
    for _ in range(10):
        steps.observe(prompt_tokens=tried[-1], step_s=FIXED_S + tried[-1] * TOKEN_S)
        tried.append(steps.size(prompt_tokens=800, stages=3, row_s=ROW_BYTES / 12.5e6) or MOST)
    assert tried[-1] == size_at(12.5e6)
    assert tried == sorted(tried, reverse=True)
