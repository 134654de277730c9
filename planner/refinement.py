"""Layer times refined by what stages did under traffic: a factor for prompts, one for decodes.

Over a while a stage of j layers was busy for

    busy = f_d D + f_p P,   D = j sum of decode times,   P = j sum of prompt times

by its profile's times; both factors are 1 where the profile is right. They are found by least
squares of relative errors, where what is older counts less (it halves every `half_life_s`), what is
far off counts less (Huber), and both factors are drawn to 1 as by a few observations, so that
little evidence changes little. A stage that does only decodes says nothing of prompts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.domain.layer_times import LayerTimes
from planner.domain.profile import ComputeProfile

HALF_LIFE_S = 600.0
# Observations that the profile itself is worth.
_PRIOR = 1.0
# Relative errors up to this count squared, beyond it by their size.
_HUBER = 0.15
_ROUNDS = 20
# What one observation is off by at least, whatever they agree on: they are not independent.
_LEAST_SPREAD = 0.1
_LEAST_FACTOR = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Seconds that a stage was busy over a while that ended `age_s` ago, and should have been for
    its decodes and for its prompts by its profile."""

    age_s: float
    busy_s: float
    decode_s: float
    prompt_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Measured time over the profile's; `error` is one standard error."""

    factor: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """`observations` as much as they count now; `busy_s` is all they were of."""

    prompt: Factor
    decode: Factor
    observations: float
    busy_s: float


def refine(observed: Sequence[Busy], *, half_life_s: float = HALF_LIFE_S) -> Refinement | None:
    """None: no stage did anything."""
    used = [one for one in observed if one.busy_s > 0 and one.decode_s + one.prompt_s > 0]
    if not used:
        return None
    expected_O2 = np.array([[one.decode_s, one.prompt_s] for one in used])
    busy_O = np.array([one.busy_s for one in used])
    age_O = np.array([0.5 ** (one.age_s / half_life_s) for one in used])
    relative_O2 = expected_O2 / busy_O[:, None]
    factors_2, weights_O = np.ones(2), age_O
    prior_2 = _PRIOR * np.ones(2)
    for _ in range(_ROUNDS):
        normal_22 = relative_O2.T @ (weights_O[:, None] * relative_O2) + np.diag(prior_2)
        factors_2 = np.linalg.solve(normal_22, relative_O2.T @ weights_O + prior_2)
        factors_2 = np.maximum(factors_2, _LEAST_FACTOR)
        left_O = np.abs(1.0 - relative_O2 @ factors_2)
        weights_O = age_O * np.minimum(1.0, _HUBER / np.maximum(left_O, 1e-12))
    counted = float(weights_O.sum())
    variance = float((weights_O * left_O**2).sum()) / max(counted, 1e-12)
    spread = np.sqrt(max(variance, _LEAST_SPREAD**2) * np.diag(np.linalg.inv(normal_22)))
    decode, prompt = (
        Factor(factor=float(factor), error=float(error))
        for factor, error in zip(factors_2, spread, strict=True)
    )
    return Refinement(
        prompt=prompt, decode=decode, observations=float(age_O.sum()), busy_s=float(busy_O.sum())
    )


def refined_times(times: LayerTimes, found: Refinement) -> LayerTimes:
    """`times` scaled by the factors that traffic showed; times between steps are unchanged, as
    stages do not report them."""
    return LayerTimes(
        prompt=tuple((tokens, s * found.prompt.factor) for tokens, s in times.prompt),
        decode=tuple((tokens, s * found.decode.factor) for tokens, s in times.decode),
        prompt_step_s=times.prompt_step_s * found.prompt.factor,
        decode_step_s=times.decode_step_s * found.decode.factor,
        head_s=times.head_s * found.decode.factor,
        handling_s=times.handling_s,
        hop_s=times.hop_s,
    )


def refined_profile(
    profile: ComputeProfile, times: LayerTimes, found: Refinement, *, prompt_tokens: float
) -> ComputeProfile:
    """The profile with these times refined, and its T_j by as much as a typical request is longer.

    `times` are the profile's own, or those derived for it; batches count as large as its T_j say.
    """
    refined = refined_times(times, found)
    return replace(
        profile,
        tokens_per_s=tuple(
            speed / _longer(times, found, layers=layers, speed=speed, prompt_tokens=prompt_tokens)
            for layers, speed in enumerate(profile.tokens_per_s, start=1)
        ),
        layer_times=refined,
    )


def _longer(
    times: LayerTimes, found: Refinement, *, layers: int, speed: float, prompt_tokens: float
) -> float:
    """Factor of the time per token at `speed`, weighted by the share that prompts take of it."""
    if speed <= 0:
        return 1.0
    prompt_s = times.prompt_s(prompt_tokens) / prompt_tokens
    whole_s = 1 / (speed * layers)
    share = min(1.0, prompt_s / whole_s) if math.isfinite(whole_s) else 0.0
    return share * found.prompt.factor + (1 - share) * found.decode.factor
