"""How long a node's steps should have taken by its profile, which says it of any batch. Pure.

What a node is capable of (T_j) holds for large batches. At little load batches are small, steps
mostly the same for every one of them, and all nodes would seem slow, each in another measure.
"""

from dataclasses import dataclass, replace

from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import LayerTimes
from planner.domain.placement import LayerRange
from planner.domain.problem import Problem
from planner.timing import layer_times_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What a stage did over a while: steps, and the tokens in them."""

    steps: int
    prompt_tokens: int
    decode_tokens: int


def expected_busy_s(
    steps: Steps, times: LayerTimes, *, layers: int, has_head: bool, mean_prompt_tokens: float
) -> float:
    """Seconds that one or more should have taken: decodes spread evenly, prompts whole.

    `has_head`: the model's last layer is among the `layers`.
    """
    return sum(
        _parts_s(
            steps, times, layers=layers, has_head=has_head, mean_prompt_tokens=mean_prompt_tokens
        )
    )


def _parts_s(
    steps: Steps, times: LayerTimes, *, layers: int, has_head: bool, mean_prompt_tokens: float
) -> tuple[float, float]:
    """For its decodes, for its prompts; stages do not count what they do beside steps as busy."""
    times = replace(times, handling_s=0.0)
    # Each step has it once, with its decodes.
    shared_s = times.shared_s(has_head=has_head) if steps.decode_tokens else 0.0
    times = times.held(layers, has_head=has_head)
    decodes_s = steps.steps * times.decode_s(steps.decode_tokens / steps.steps)
    prompts = steps.prompt_tokens / mean_prompt_tokens
    prompt_s = layers * times.prompt_s(mean_prompt_tokens) - shared_s
    return layers * decodes_s, prompts * prompt_s


class StepTimes:
    """Of the nodes of one problem; the times of a profile are looked up once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._by_profile: dict[str, LayerTimes | None] = {}

    def expected_s(self, node: str, steps: Steps, *, layers: LayerRange) -> float | None:
        """Seconds that `node` should have taken; None without steps, or times in its profile."""
        parts = self.expected_parts_s(node, steps, layers=layers)
        return None if parts is None else sum(parts)

    def expected_parts_s(
        self, node: str, steps: Steps, *, layers: LayerRange
    ) -> tuple[float, float] | None:
        """The same for decodes and for prompts."""
        if steps.steps <= 0:
            return None
        profile = self._problem.profile_of(node).name
        if profile not in self._by_profile:
            try:
                self._by_profile[profile] = layer_times_of(self._problem, node)
            except InvalidProblem:
                self._by_profile[profile] = None
        times = self._by_profile[profile]
        if times is None:
            return None
        mean_prompt_tokens = self._problem.workload.mean_prompt_tokens
        return _parts_s(
            steps,
            times,
            layers=len(layers),
            has_head=layers.end == self._problem.model.num_layers,
            mean_prompt_tokens=mean_prompt_tokens,
        )
