"""Statistics of request lengths for estimates: means, and lengths of requests in flight."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from planner.domain.problem import Workload
from planner.workload.lengths import published_lengths
from planner.workload.request import Lengths

_SAMPLES = 4000
_SAMPLE_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthStatistics:
    """Tokens. `reserved_tokens` is the mean KV reservation of a request in flight, per layer.

    A request is in flight as long as its output is long, so those with long outputs, whose prompts
    are longer too, weigh more: it exceeds prompt + output. `squared_ratio` is E[prompt^2] over
    E[prompt]^2.
    """

    prompt_tokens: float
    output_tokens: float
    reserved_tokens: float
    squared_ratio: float

    @classmethod
    def of(cls, requests: Iterable[Lengths]) -> "LengthStatistics":
        """Statistics of a sample. Reservations: the prompt and the mean output, or the actual
        output if it is longer."""
        pairs = [(request.prompt_tokens, request.output_tokens) for request in requests]
        prompt = sum(pair[0] for pair in pairs) / len(pairs)
        output = sum(pair[1] for pair in pairs) / len(pairs)
        reserved = sum(
            out * (tokens + output) + max(0.0, out - output) ** 2 / 2 for tokens, out in pairs
        )
        return cls(
            prompt_tokens=prompt,
            output_tokens=output,
            reserved_tokens=reserved / len(pairs) / output,
            squared_ratio=sum(tokens**2 for tokens, _ in pairs) / len(pairs) / prompt**2,
        )


@cache
def _published_sample() -> tuple[LengthStatistics, float]:
    """Statistics, and the mean prompt tokens of a request in flight."""
    pairs = list(itertools.islice(published_lengths(_SAMPLE_SEED), _SAMPLES))
    prompts = sum(pair.output_tokens * pair.prompt_tokens for pair in pairs)
    return LengthStatistics.of(pairs), prompts / sum(pair.output_tokens for pair in pairs)


def lengths_like_published(workload: Workload) -> LengthStatistics:
    """The workload's means, spread and correlated like the published conversations'."""
    sample, prompts = _published_sample()
    # Reservations are part prompt, part output: scale each part as its own mean.
    outputs = sample.reserved_tokens - prompts
    prompts *= workload.mean_prompt_tokens / sample.prompt_tokens
    outputs *= workload.mean_output_tokens / sample.output_tokens
    return LengthStatistics(
        prompt_tokens=workload.mean_prompt_tokens,
        output_tokens=workload.mean_output_tokens,
        reserved_tokens=prompts + outputs,
        squared_ratio=sample.squared_ratio,
    )
