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

from planner.latency_model import Fit, LatencyModel, Timing, fit_extended_model
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.models.decoder import LoadedDecoder
from runtime.profiler.step_times import (
    DEEP,
    SHALLOW,
    StepRuns,
    StepTimes,
    run_step,
    runner_as_staged,
    step_cost,
)
from runtime.protocol.profiling import FittedEquation, MeasuredPoint

# Together well below three minutes, with reading the checkpoint.
_BUDGET_S = 120.0
_DECODES = (1, 2, 4, 8, 16)
_PROMPTS = (16, 64, 256, 512)
# For the latency model: what the steps above do not vary.
_NEAR_DECODES, _FAR_DECODES = (1, 4, 16), (1, 4)
_MORE_PROMPTS = ((2, 64), (4, 16), (4, 64))
_FEW_BATCHES = (2, 4)

# Times a step in its turn: called with the share that is done, and what to run.
Turn = Callable[[float, Callable[[], StepRuns]], StepRuns]


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


def sweep_shapes(*, context_tokens: int, longest_tokens: int) -> tuple[StepShape, ...]:
    """What is measured, small steps first. `context_tokens` is that of a typical decode,
    `longest_tokens` the most that a request may have."""
    prompts = [tokens for tokens in _PROMPTS if tokens < longest_tokens]
    more_prompts = [(batch, tokens) for batch, tokens in _MORE_PROMPTS if tokens < longest_tokens]
    if len(prompts) < 2:  # of a context so short that no fit would follow from these
        prompts = sorted({max(1, longest_tokens // 4), max(1, longest_tokens - 1)})
        more_prompts = [(batch, tokens) for batch in _FEW_BATCHES for tokens in prompts]
    both = (SHALLOW, DEEP)
    shapes = [
        StepShape(phase="decode", layers=layers, batch=batch, tokens=context_tokens)
        for batch in _DECODES
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
    """Steps of one layer of a checkpoint, alone and repeated."""

    def __init__(
        self,
        decoder: LoadedDecoder,
        *,
        context_tokens: int,
        longest_tokens: int,
        page_tokens: int,
        clock: Callable[[], float],
        rest: Callable[[float], None],
    ) -> None:
        self._shapes = sweep_shapes(context_tokens=context_tokens, longest_tokens=longest_tokens)
        self._context_tokens = context_tokens
        self._clock, self._rest = clock, rest
        pages = max(_pages(shape, page_tokens) for shape in self._shapes)
        self._cache = KvCache(
            decoder.config, pages=pages, page_tokens=page_tokens, device=decoder.device
        )
        self._runner = runner_as_staged(
            decoder.repeating(DEEP),
            self._cache,
            EngineLimits(
                page_tokens=page_tokens,
                max_batch_tokens=max(_PROMPTS),
                max_context_tokens=longest_tokens,
            ),
            depths=(SHALLOW, DEEP),
        )
        self.points: list[MeasuredPoint] = []

    def run(self, turn: Turn) -> None:
        """Fill `points`; each step that is timed has its turn."""
        spent_s = 0.0
        for done, shape in enumerate(self._shapes):
            if spent_s + self._expected_s(shape) > _BUDGET_S and self._is_enough:
                continue
            runs = turn(done / len(self._shapes), partial(self._run, shape))
            spent_s += runs.runs * runs.median_s
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
        return fit_extended_model(self._timings("prompt"), self._timings("decode"))

    def _run(self, shape: StepShape) -> StepRuns:
        is_prompt = shape.phase == "prompt"
        return run_step(
            self._runner,
            self._cache,
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
        last = before[-1]
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
