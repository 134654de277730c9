"""Which numbers of decodes a profile times, so that estimates between them are close."""

from collections.abc import Callable

import pytest

from runtime.profiler.step_times import (
    MOST_DECODES,
    decode_batches,
    interpolation_errors,
    most_decodes,
    next_size,
)


def memory_then_arithmetic(size: float) -> float:
    """A GPU's step: it reads the weights, until arithmetic takes longer."""
    return max(1.0, size / 40)


def tiled(size: float) -> float:
    """Kernels that work on 32 rows at once."""
    return 1.0 + 0.25 * -(-size // 32)


def straight(size: float) -> float:
    return 0.2 + 0.01 * size


def timed(step_s: Callable[[float], float], most: int) -> dict[int, float]:
    """The sizes that a sweep times, as `NodeSweep` does."""
    seconds = {size: step_s(size) for size in decode_batches(most)}
    for _ in range(4):
        size = next_size(seconds)
        if size is None:
            break
        seconds[size] = step_s(size)
    return dict(sorted(seconds.items()))


def interpolated(seconds: dict[int, float], size: int) -> float:
    low = max(known for known in seconds if known <= size)
    high = min(known for known in seconds if known >= size)
    share = 0.0 if low == high else (size - low) / (high - low)
    return (1 - share) * seconds[low] + share * seconds[high]


@pytest.mark.parametrize("most", [1, 4, 5, 16, 23, 24, 64, 100, 256, 5000])
def test_sizes_rise_to_what_the_node_holds(most: int) -> None:
    sizes = decode_batches(most)
    assert sizes[0] == 1
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == min(max(most, 4), MOST_DECODES)
    assert len(sizes) <= 6


@pytest.mark.parametrize("step_s", [memory_then_arithmetic, tiled, straight])
def test_a_few_sizes_tell_all_steps_within_a_fifth(step_s: Callable[[float], float]) -> None:
    seconds = timed(step_s, MOST_DECODES)
    assert len(seconds) <= 10
    for size in range(1, MOST_DECODES + 1):
        assert interpolated(seconds, size) == pytest.approx(step_s(size), rel=0.2)


def test_a_straight_line_needs_no_further_size() -> None:
    seconds = timed(straight, MOST_DECODES)
    assert tuple(seconds) == decode_batches(MOST_DECODES)
    assert max(interpolation_errors(seconds).values()) == pytest.approx(0, abs=1e-9)


def test_the_estimated_error_is_that_of_leaving_a_size_out() -> None:
    errors = interpolation_errors({1: 1.0, 2: 1.0, 3: 2.0})
    assert errors == {2: pytest.approx(0.5)}
    assert interpolation_errors({1: 1.0, 2: 1.0}) == {}


def test_the_kv_cache_bounds_the_decodes_of_a_step() -> None:
    assert most_decodes(5 * 100 * 30.0, context_tokens=99) == 30
    assert most_decodes(10.0, context_tokens=99) == 0
