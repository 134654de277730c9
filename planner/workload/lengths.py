"""Lengths of requests: read from a trace, or drawn like those of a published one.

The generator draws two correlated normal numbers and looks each up in the quantiles of the Azure
conversation trace of 2023 as the Helix paper prunes it (§6.2: prompts up to 2048 tokens, answers up
to 1024): a Gaussian copula. Its correlation is set so that the lengths correlate as the trace's do
(0.51), which also gives the mean product that KV room depends on.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist

from planner.domain.problem import Workload
from planner.workload.request import InvalidWorkload, Lengths
from planner.workload.rows import whole_rows

MEAN_PROMPT_TOKENS, MEAN_OUTPUT_TOKENS = 763.1, 232.4

PROMPT_COLUMN, OUTPUT_COLUMN = "input_len", "output_len"

# fmt: off
# Quantiles at _SHARES of the prompt and output tokens of 16 657 conversations.
_SHARES = (
    0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.275,
    0.3, 0.325, 0.35, 0.375, 0.4, 0.425, 0.45, 0.475, 0.5, 0.525, 0.55, 0.575, 0.6, 0.625, 0.65,
    0.675, 0.7, 0.725, 0.75, 0.775, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98,
    0.985, 0.99, 0.995, 0.998, 1,
)
_PROMPT_TOKENS = (
    7, 27, 91, 126, 173, 181, 194, 203, 210, 240, 372, 378, 385, 391, 395, 397, 400, 403, 407,
    412, 422, 447, 851, 947, 985, 1004, 1018, 1029, 1040, 1050, 1061, 1072, 1083, 1094, 1107,
    1121, 1138, 1161, 1196, 1273, 1315, 1353, 1456, 1595, 1746, 1835, 1911, 1992, 2008, 2047,
)
_OUTPUT_TOKENS = (
    7, 14, 18, 41, 48, 52, 60, 68, 75, 80, 84, 87, 89, 92, 95, 97, 101, 104, 109, 115, 123, 133,
    144, 157, 167, 181, 204, 217, 374, 383, 390, 394, 396, 397, 401, 407, 411, 415, 420, 429,
    438, 463, 491, 520, 559, 585, 608, 649, 935, 1000,
)
# fmt: on
_NORMAL_CORRELATION = 0.571


def published_lengths(seed: int) -> Iterator[Lengths]:
    """Endless lengths like the Azure conversation trace's; the same for the same seed."""
    generator = random.Random(seed)  # noqa: S311 - a workload, no secret
    normal = NormalDist()
    rest = (1.0 - _NORMAL_CORRELATION**2) ** 0.5
    while True:
        first = generator.gauss(0.0, 1.0)
        second = _NORMAL_CORRELATION * first + rest * generator.gauss(0.0, 1.0)
        yield Lengths(
            prompt_tokens=_quantile(_PROMPT_TOKENS, normal.cdf(first)),
            output_tokens=_quantile(_OUTPUT_TOKENS, normal.cdf(second)),
        )


def scaled_lengths(workload: Workload, *, seed: int) -> Iterator[Lengths]:
    """`published_lengths` stretched to the workload's means: the same shape, at least 1 token."""
    prompt_factor = workload.mean_prompt_tokens / MEAN_PROMPT_TOKENS
    output_factor = workload.mean_output_tokens / MEAN_OUTPUT_TOKENS
    for lengths in published_lengths(seed):
        yield Lengths(
            prompt_tokens=max(1, round(lengths.prompt_tokens * prompt_factor)),
            output_tokens=max(1, round(lengths.output_tokens * output_factor)),
        )


def drawn_lengths(trace: Sequence[Lengths], *, seed: int) -> Iterator[Lengths]:
    """Endless lengths drawn from a trace's with replacement."""
    if not trace:
        raise InvalidWorkload("the trace has no requests to draw lengths from; give at least one")
    generator = random.Random(seed)  # noqa: S311 - a workload, no secret
    while True:
        yield generator.choice(trace)


def lengths_from_csv(path: Path, *, context_tokens: int | None = None) -> tuple[Lengths, ...]:
    """Rows `input_len,output_len` of a trace, in order.

    Raises InvalidWorkload naming the row for a length that is missing, not whole or below 1, and
    for a request longer than `context_tokens`.
    """
    lengths = []
    for where, (prompt, output) in whole_rows(path, PROMPT_COLUMN, OUTPUT_COLUMN, minimum=1):
        if context_tokens is not None and prompt + output > context_tokens:
            raise InvalidWorkload(
                f"{where}: {prompt} prompt and {output} output tokens are more than the context of "
                f"{context_tokens}; remove the row or raise the context"
            )
        lengths.append(Lengths(prompt_tokens=prompt, output_tokens=output))
    if not lengths:
        raise InvalidWorkload(f"{path} has no requests; give at least one row")
    return tuple(lengths)


def _quantile(values: tuple[int, ...], share: float) -> int:
    """Between two points of a quantile table linear, rounded; at least 1."""
    upper = min(max(bisect_right(_SHARES, share), 1), len(_SHARES) - 1)
    low, high = _SHARES[upper - 1], _SHARES[upper]
    part = (share - low) / (high - low)
    return max(1, round(values[upper - 1] + part * (values[upper] - values[upper - 1])))
