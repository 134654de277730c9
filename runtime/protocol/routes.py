"""A request's route and how it is sampled, as they travel with its first entry (see `data`).

The types are the format: `data` reads and writes them as JSON by pydantic, within these bounds.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from planner.domain.cluster import COORDINATOR
from runtime.protocol.bounds import Uint16, Uint32, Uint64

_NEVER = -1e30  # a bias; finite, so that a grammar which allows nothing else still has its way
DIGEST_BYTES = 16

Name = Annotated[str, Field(max_length=255)]
Digest = Annotated[bytes, Field(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One stage of the route and the layers [first, end) to run there."""

    node: Name
    first: Uint16
    end: Uint16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the last stage picks tokens. temperature 0 is greedy; top_k 0, top_p 1, min_p 0 are off.

    Noise is seeded by (seed, position), so neither batch nor node changes the draw. Presence and
    frequency penalties (0: off) count the tokens sampled, repetition_penalty (1: off) those of the
    prompt as well, which come along as `prompt_ids` if it is on. `emitted_ids` are the tokens
    sampled before a request was begun again, if its sampling depends on them. `logit_bias`:
    (token id, bias). `logprobs`: how many alternatives are told with each token, None: nothing.
    `grammar`: a JSON schema the answer must follow; empty: none. No stop token is among the first
    `min_tokens`, unless the grammar leaves nothing else.
    """

    temperature: float
    top_p: float
    top_k: Uint32
    seed: Uint64
    max_tokens: Uint32
    min_tokens: Uint32 = 0
    stop_token_ids: Annotated[tuple[Uint32, ...], Field(max_length=255)] = ()
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[Uint32, float], ...] = ()
    logprobs: Annotated[int, Field(ge=0, le=127)] | None = None
    grammar: str = ""
    prompt_ids: tuple[Uint32, ...] = field(default=(), repr=False)
    emitted_ids: tuple[Uint32, ...] = field(default=(), repr=False)

    @property
    def has_penalties(self) -> bool:
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )

    @property
    def needs_history(self) -> bool:
        """Whether a token depends on those before it by more than the model."""
        return self.has_penalties or bool(self.grammar)

    def at(self, generated: int) -> "Sampling":
        """How the token behind `generated` sampled ones is picked: `min_tokens` as biases."""
        if generated >= self.min_tokens:
            return self
        stops = tuple((token_id, _NEVER) for token_id in self.stop_token_ids)
        return replace(self, min_tokens=0, logit_bias=self.logit_bias + stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The path of a request, how long its prompt is, and how to sample.

    `block_digests` name the whole blocks (page_tokens tokens) of its prompt, so that stages can
    share their pages; the first stage adds them, and the name of the coordinator that it has the
    prompt from. As the coordinator sends it, there is at most one, which salts those.
    """

    hops: Annotated[tuple[Hop, ...], Field(min_length=1, max_length=255)]
    sampling: Sampling
    prompt_tokens: Uint32
    block_digests: tuple[Digest, ...] = field(default=(), repr=False)
    coordinator: Name = COORDINATOR
