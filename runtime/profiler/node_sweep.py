"""Measures a node in the background: steps by tokens, context and layers, when it is let to.

Each step is timed in its own turn, so that traffic on the node never waits longer than for one of
them. Steps that would take too long are left out; small ones are measured first.

What counts is the median of runs that each follow a rest, as a stage's steps follow a wait for
messages: caches are cold by then, and a small step on a CPU takes several times as long as right
after another.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import torch

from planner.latency_fit import Timing, fit_latency_model
from planner.latency_model import Fit, LatencyModel
from runtime.engine.limits import EngineLimits
from runtime.engine.opening import AnyEngine
from runtime.engine.step_runner import StepRunner
from runtime.profiler.step_times import (
    DEEP,
    MOST_DECODES,
    MOST_REFINEMENTS,
    SHALLOW,
    StepRuns,
    StepTimes,
    decode_batches,
    interpolation_errors,
    next_size,
    run_step,
    step_cost,
)
from runtime.protocol.profiling import FittedEquation, MeasuredPoint

# Together well below three minutes, with reading the checkpoint.
_BUDGET_S = 120.0
_FEWEST_DECODES = 16  # are timed even where a stage holds nearly all memory
_PROMPTS = (16, 64, 256, 512)
# For the latency model: what the steps above do not vary.
_NEAR_DECODES, _FAR_DECODES = (1, 4, 16), (1, 4)
_MORE_PROMPTS = ((2, 64), (4, 16), (4, 64))
_FEW_BATCHES = (2, 4)

FoundT = TypeVar("FoundT")


class Turn(Protocol):
    """Times something in its turn: gets the share that is done, and what to run."""

    def __call__(self, done: float, run: Callable[[], FoundT], /) -> FoundT: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """`tokens` of each prompt, or of each context of a decode."""

    phase: str
    layers: int
    batch: int
    tokens: int

    @property
    def work(self) -> float:
        """About in proportion to its time, for steps of one phase that are not tiny."""
        rows = self.batch * (self.tokens if self.phase == "prompt" else 1)
        return float(self.layers * rows)


def sweep_shapes(
    *, context_tokens: int, longest_tokens: int, decodes: int
) -> tuple[StepShape, ...]:
    """The steps to measure, small ones first. `context_tokens` is that of a typical decode,
    `longest_tokens` the most that a request may have, `decodes` how many one step may hold."""
    prompts = [tokens for tokens in _PROMPTS if tokens < longest_tokens]
    more_prompts = [(batch, tokens) for batch, tokens in _MORE_PROMPTS if tokens < longest_tokens]
    if len(prompts) < 2:  # of a context so short that no fit would follow from these
        prompts = sorted({max(1, longest_tokens // 4), max(1, longest_tokens - 1)})
        more_prompts = [(batch, tokens) for batch in _FEW_BATCHES for tokens in prompts]
    both = (SHALLOW, DEEP)
    shapes = [
        StepShape(phase="decode", layers=layers, batch=batch, tokens=context_tokens)
        for batch in decode_batches(decodes)
        for layers in both
    ] + [
        StepShape(phase="prompt", layers=layers, batch=1, tokens=tokens)
        for tokens in prompts
        for layers in both
    ]
    near, far = context_tokens // 4, min(4 * context_tokens, longest_tokens - 1)
    shapes += [
        StepShape(phase="decode", layers=DEEP, batch=batch, tokens=tokens)
        for tokens, batches in ((near, _NEAR_DECODES), (far, _FAR_DECODES))
        for batch in batches
        if tokens != context_tokens
    ]
    shapes += [
        StepShape(phase="prompt", layers=DEEP, batch=batch, tokens=tokens)
        for batch, tokens in more_prompts
    ]
    return tuple(sorted(shapes, key=lambda shape: (shape.work, shape.phase, shape.tokens)))


class NodeSweep:
    """Times steps of a checkpoint's layers on this node; the measuring process runs it.

    Steps of one layer of a checkpoint, and of several.
    """

    def __init__(
        self,
        engine: AnyEngine,
        *,
        context_tokens: int,
        limits: EngineLimits,
        decodes: int,
        clock: Callable[[], float],
        rest: Callable[[float], None],
    ) -> None:
        """Raises CheckpointError, CannotRun, and torch.OutOfMemoryError."""
        first = engine.first_layers(DEEP, limits)
        while True:
            self._shapes = sweep_shapes(
                context_tokens=context_tokens,
                longest_tokens=limits.max_context_tokens,
                decodes=decodes,
            )
            pages = max(_pages(shape, limits.page_tokens) for shape in self._shapes)
            try:
                self._runner: StepRunner = first.runner(pages=pages)
                break
            except torch.OutOfMemoryError:  # a stage beside it has the memory
                if decodes <= _FEWEST_DECODES:
                    raise
                decodes = max(_FEWEST_DECODES, min(decodes, MOST_DECODES) // 2)
        self._context_tokens = context_tokens
        self._clock, self._rest = clock, rest
        self.points: list[MeasuredPoint] = []
        self._spent_s = 0.0

    def run(self, turn: Turn) -> None:
        """Fill `points`; each step that is timed has its turn."""
        for done, shape in enumerate(self._shapes):
            self._measure(shape, done / len(self._shapes), turn)
        for _ in range(MOST_REFINEMENTS):
            size = next_size(self._decode_s())
            if size is None:
                break
            for layers in (SHALLOW, DEEP):
                self._measure(self._decodes(size, layers), 1.0, turn)
            if size not in self._decode_s():
                break  # no time was left for it

    def check(self, points: Sequence[MeasuredPoint], turn: Turn) -> None:
        """Fill `points` with the steps of these alone."""
        for done, point in enumerate(points):
            self._measure(_shape(point), done / len(points), turn)

    def interpolation_error(self) -> float:
        """The worst relative error of decode steps between measured numbers of decodes; see
        `interpolation_errors`."""
        return max(interpolation_errors(self._decode_s()).values(), default=0.0)

    def _measure(self, shape: StepShape, done: float, turn: Turn) -> None:
        """Time a step unless it would take longer than is left and is not needed."""
        if self._spent_s + self._expected_s(shape) > _BUDGET_S and self._is_enough:
            return
        runs = turn(done, partial(self._run, shape))
        self._spent_s += runs.runs * runs.median_s
        self.points.append(
            MeasuredPoint(
                phase=shape.phase,
                layers=shape.layers,
                batch=shape.batch,
                tokens=shape.tokens,
                seconds=runs.least_s,
                median_s=runs.median_s,
                runs=runs.runs,
            )
        )

    def _decodes(self, batch: int, layers: int) -> StepShape:
        return StepShape(phase="decode", layers=layers, batch=batch, tokens=self._context_tokens)

    def _decode_s(self) -> dict[int, float]:
        """Seconds of a decode step over DEEP layers by the number of decodes."""
        return {batch: cost.seconds(DEEP) for batch, cost in self.step_times().decode.items()}

    def step_times(self) -> StepTimes:
        """What a profile is made from."""
        return StepTimes(
            decode={
                shallow.batch: step_cost(shallow_s=shallow.median_s, deep_s=deep.median_s)
                for shallow, deep in self._pairs("decode")
                if shallow.tokens == self._context_tokens
            },
            prefill={
                shallow.tokens: step_cost(shallow_s=shallow.median_s, deep_s=deep.median_s)
                for shallow, deep in self._pairs("prompt")
                if shallow.batch == 1
            },
        )

    def latency_model(self) -> LatencyModel:
        """Of a step over DEEP layers. Raises CannotFit."""
        return fit_latency_model(self._timings("prompt"), self._timings("decode"), extended=True)

    def _run(self, shape: StepShape) -> StepRuns:
        is_prompt = shape.phase == "prompt"
        return run_step(
            self._runner,
            layers=shape.layers,
            requests=shape.batch,
            position=0 if is_prompt else shape.tokens,
            n_tokens=shape.tokens if is_prompt else 1,
            clock=self._clock,
            rest=self._rest,
        )

    @property
    def _is_enough(self) -> bool:
        """Whether a profile can be made of what was measured."""
        return all(
            len(list(self._pairs(phase))) >= 2 and _can_be_fitted(self._timings(phase))
            for phase in ("decode", "prompt")
        )

    def _expected_s(self, shape: StepShape) -> float:
        """For its first run, from the largest step of the phase so far."""
        before = [point for point in self.points if point.phase == shape.phase]
        if not before:
            return 0.0
        last = max(before, key=lambda point: _shape(point).work)
        return last.median_s * shape.work / _shape(last).work

    def _pairs(self, phase: str) -> Iterator[tuple[MeasuredPoint, MeasuredPoint]]:
        """The same step over SHALLOW layers and over DEEP."""
        found = {_shape(point): point for point in self.points if point.phase == phase}
        for shape, point in found.items():
            deep = StepShape(phase=phase, layers=DEEP, batch=shape.batch, tokens=shape.tokens)
            if shape.layers == SHALLOW and deep in found:
                yield point, found[deep]

    def _timings(self, phase: str) -> list[Timing]:
        return [
            Timing(batch=point.batch, tokens=point.tokens, seconds=point.median_s)
            for point in self.points
            if point.phase == phase and point.layers == DEEP
        ]


def fitted_equation(fit: Fit, *, relative_speed: float) -> FittedEquation:
    """As it is told, on a node of that speed."""

    def slowed(terms: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        first, second, third, fourth = (term / relative_speed for term in terms)
        return first, second, third, fourth

    return FittedEquation(
        layers=DEEP,
        parameters=slowed(fit.parameters),
        standard_errors=None if fit.standard_errors is None else slowed(fit.standard_errors),
        points=fit.points,
        median_error=fit.median_error,
        worst_error=fit.worst_error,
        several_s=fit.several_s / relative_speed,
    )


def _can_be_fitted(timings: Sequence[Timing]) -> bool:
    batches = {timing.batch for timing in timings}
    lengths = {timing.tokens for timing in timings}
    return len(timings) >= 4 and len(batches) >= 2 and len(lengths) >= 2


def _shape(point: MeasuredPoint) -> StepShape:
    return StepShape(phase=point.phase, layers=point.layers, batch=point.batch, tokens=point.tokens)


def _pages(shape: StepShape, page_tokens: int) -> int:
    tokens = shape.tokens + (shape.phase == "decode")
    return shape.batch * -(-tokens // page_tokens) * shape.layers
