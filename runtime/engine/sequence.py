"""One request as this stage sees it: its route, its pages, and the rows that wait to be run."""

import itertools
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace

from runtime.engine.pages import BlockTable
from runtime.engine.span_record import SpanRecord
from runtime.protocol.data import Hop, Route, Sampling

_UNSAMPLED = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """A request and its epoch; a request that is restarted gets a new epoch."""

    request: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """`n_tokens` consecutive rows from `position` on: int32 token ids before layer 0, else rows.

    `arrival` counts chunks as they came to the stage. `is_sampled`: a token follows its last row.
    """

    position: int
    n_tokens: int
    payload: memoryview = field(repr=False)
    is_sampled: bool
    arrival: int

    @property
    def end(self) -> int:
        return self.position + self.n_tokens

    def split(self, n_tokens: int) -> tuple["Chunk", "Chunk"]:
        """The first `n_tokens` rows and the others; only the last part is sampled from."""
        cut = len(self.payload) // self.n_tokens * n_tokens
        head = replace(self, n_tokens=n_tokens, payload=self.payload[:cut], is_sampled=False)
        tail = replace(
            self,
            position=self.position + n_tokens,
            n_tokens=self.n_tokens - n_tokens,
            payload=self.payload[cut:],
        )
        return head, tail


class Sequence:
    """One request on one stage; the intake makes it, steps run its chunks.

    Mutable state of a request between steps. Its chunks are run in order, one per step.
    """

    def __init__(
        self, *, key: RequestKey, generation: int, route: Route, hop: int, arrival: int
    ) -> None:
        self.key = key
        self.generation = generation
        self.route = route
        self.hop = hop
        self.arrival = arrival
        self.table = BlockTable(num_layers=self.end - self.first)
        self.pending: deque[Chunk] = deque()
        self.received = 0  # tokens of the sequence that have come so far
        self.done = 0  # tokens of the sequence whose rows were taken into a step or not needed
        self.published = 0  # blocks of its prompt that others may share
        self.heard_s = 0.0  # when rows last came, on the stage's clock
        self.left_s: float | None = None  # when its last step here ended
        self.is_finished = False  # its last token was sampled; the coordinator releases it
        self.route_sent = False
        self.spans = SpanRecord()

    @property
    def first(self) -> int:
        """First layer this stage runs for the request."""
        return self.route.hops[self.hop].first

    @property
    def end(self) -> int:
        """One past the last layer this stage runs for the request."""
        return self.route.hops[self.hop].end

    @property
    def is_prefilling(self) -> bool:
        """Whether the rows that wait are of the prompt; False when none wait."""
        return bool(self.pending) and self.pending[0].position < self.route.prompt_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether the whole prompt has been run here."""
        return self.done >= self.route.prompt_tokens

    @property
    def is_first_stage(self) -> bool:
        return self.hop == 0

    @property
    def is_awaited(self) -> bool:
        """Whether it will be back here, at its first stage, for its next decode."""
        return self.is_first_stage and self.is_decoding and not self.is_finished

    @property
    def is_last_stage(self) -> bool:
        return self.hop == len(self.route.hops) - 1

    @property
    def first_stage(self) -> str:
        """Node where the request's tokens enter."""
        return self.route.hops[0].node

    @property
    def last_stage(self) -> str:
        """Node that samples its tokens."""
        return self.route.hops[-1].node

    @property
    def next_stage(self) -> str:
        """Node that gets the rows of this stage; not for the last stage."""
        return self.route.hops[self.hop + 1].node

    def append(self, chunk: Chunk) -> None:
        """Queue the next rows; `chunk.position` must be `received`."""
        self.pending.append(chunk)
        self.received = chunk.end

    def take(self, n_tokens: int) -> Chunk:
        """The next `n_tokens` rows, at most those of the oldest chunk."""
        chunk = self.pending.popleft()
        if n_tokens < chunk.n_tokens:
            chunk, rest = chunk.split(n_tokens)
            self.pending.appendleft(rest)
        self.done = chunk.end
        return chunk


def passing(first: int, end: int) -> Sequence:
    """A request through these layers, as far as they are concerned."""
    return Sequence(
        key=RequestKey(request=0, epoch=0),
        generation=1,
        route=Route(
            hops=(Hop(node="here", first=first, end=end),), sampling=_UNSAMPLED, prompt_tokens=1
        ),
        hop=0,
        arrival=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A chunk of `sequence` to run in this step; its pages are reserved."""

    sequence: Sequence
    chunk: Chunk

    @property
    def is_prompt(self) -> bool:
        """Whether it runs tokens of the prompt, not one that was sampled."""
        return self.chunk.position < self.sequence.route.prompt_tokens

    @property
    def sampling(self) -> Sampling:
        """How the token behind the chunk is picked."""
        route = self.sequence.route
        return route.sampling.at(self.chunk.end - route.prompt_tokens)


def active_between_borders(step: Items[Work]) -> Iterator[tuple[range, list[int]]]:
    """Layers between two borders, and the requests of the step that run them."""
    borders = sorted({work.sequence.first for work in step} | {work.sequence.end for work in step})
    for first, end in itertools.pairwise(borders):
        active = [
            index
            for index, work in enumerate(step)
            if work.sequence.first <= first < work.sequence.end
        ]
        if active:
            yield range(first, end), active
