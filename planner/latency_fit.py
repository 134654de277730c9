"""Fits a latency model to measured batches (Xiong et al. §3.1, equations 3 and 4).

Fitted by least squares of *relative* errors, so that short steps count as much as long ones, and
without negative parameters: more work never takes less time, also beyond what was measured.

Legend: P points, F the terms of an equation, four or five.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.domain.errors import PlannerError
from planner.latency_model import Fit, LatencyModel, Terms

_TERMS = ("batch x tokens", "batch", "tokens", "constant")


class CannotFit(PlannerError, ValueError):
    """Timings that no model follows from; the message says what to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A measured batch: `tokens` are those of each prompt (prefill), or of each context (a decode
    step, without the token that it makes)."""

    batch: int
    tokens: int
    seconds: float

    def __post_init__(self) -> None:
        if self.batch < 1 or self.tokens < 0 or not 0 < self.seconds < float("inf"):
            raise CannotFit(
                f"a batch of {self.batch} with {self.tokens} tokens took {self.seconds} s; a "
                "timing has a batch of 1 or more, no negative tokens, and took some finite time"
            )


def fit_latency_model(
    prefills: Sequence[Timing], decodes: Sequence[Timing], *, extended: bool = False
) -> LatencyModel:
    """p1..p8 of a sweep, as in the paper; with p9 for decodes if it is extended.

    Raises CannotFit naming what the sweep lacks.
    """
    return LatencyModel(
        prefill=_fit(prefills, "prefill"), decode=_fit(decodes, "decode", extended=extended)
    )


def errors_of(fit: Fit, timings: Sequence[Timing]) -> tuple[float, ...]:
    """Relative errors of what `fit` says of these batches, in their order; for held-out ones."""
    return tuple(
        abs(fit.seconds(timing.batch, timing.tokens) - timing.seconds) / timing.seconds
        for timing in timings
    )


def _fit(timings: Sequence[Timing], phase: str, *, extended: bool = False) -> Fit:
    batches = {timing.batch for timing in timings}
    lengths = {timing.tokens for timing in timings}
    if len(batches) < 2 or len(lengths) < 2 or len(timings) < len(_TERMS):
        raise CannotFit(
            f"{len(timings)} {phase} timings of {len(batches)} batch sizes and {len(lengths)} "
            f"lengths; measure {len(_TERMS)} or more, of two batch sizes and two lengths each"
        )
    pairs = [(timing.batch, timing.tokens) for timing in timings]
    terms = [[batch * tokens, batch, tokens, 1.0, float(batch > 1)] for batch, tokens in pairs]
    design_PF = np.array(terms)[:, : len(_TERMS) + extended]
    seconds_P = np.array([timing.seconds for timing in timings])
    relative_PF = design_PF / seconds_P[:, None]
    parameters_F = _not_negative(relative_PF)
    errors_P = np.abs(relative_PF @ parameters_F - 1.0)
    both, per_request, per_token, base, *several = parameters_F.tolist()
    return Fit(
        parameters=(both, per_request, per_token, base),
        standard_errors=_standard_errors(relative_PF, parameters_F),
        points=len(timings),
        median_error=float(np.median(errors_P)),
        worst_error=float(errors_P.max()),
        several_s=several[0] if several else 0.0,
    )


def _not_negative(relative_PF: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares of relative_PF @ parameters = 1 without negative ones (Lawson and Hanson).

    Columns are scaled to one size first, as tokens times requests are far larger than 1.
    """
    size_F = np.linalg.norm(relative_PF, axis=0)
    scaled_PF = relative_PF / size_F
    n_terms = scaled_PF.shape[1]
    found_F, free_F = np.zeros(n_terms), np.zeros(n_terms, dtype=bool)
    for _ in range(3 * n_terms):
        slope_F = scaled_PF.T @ (1.0 - scaled_PF @ found_F)
        slope_F[free_F] = -np.inf
        if slope_F.max(initial=-np.inf) <= 1e-12:
            break
        free_F[int(slope_F.argmax())] = True
        while True:
            trial_F = np.zeros(n_terms)
            trial_F[free_F] = np.linalg.lstsq(
                scaled_PF[:, free_F], np.ones(len(scaled_PF)), rcond=None
            )[0]
            below_F = free_F & (trial_F <= 0)
            if not below_F.any():
                found_F = trial_F
                break
            step = float((found_F[below_F] / (found_F[below_F] - trial_F[below_F])).min())
            found_F = found_F + step * (trial_F - found_F)
            free_F &= found_F > 1e-15
    return np.asarray(found_F / size_F, dtype=np.float64)


def _standard_errors(
    relative_PF: NDArray[np.float64], parameters_F: NDArray[np.float64]
) -> Terms | None:
    """Standard errors of parameters above 0; 0 for the others, which are at their bound."""
    free_F = parameters_F > 0
    spare = len(relative_PF) - int(free_F.sum())
    if spare < 1:
        return None
    left_P = 1.0 - relative_PF @ parameters_F
    variance = float(left_P @ left_P) / spare
    used_PF = relative_PF[:, free_F]
    errors_F = np.zeros(len(parameters_F))
    errors_F[free_F] = np.sqrt(variance * np.diag(np.linalg.pinv(used_PF.T @ used_PF)))
    both, per_request, per_token, base = errors_F.tolist()[: len(_TERMS)]
    return both, per_request, per_token, base
