"""A backend without a model: it takes the time that a profile says, and makes up tokens.

Tokens depend on (seed, position) alone, as sampled ones do, and never end an answer early. Rows
are nothing but a few bytes; what they would weigh on a link is `EmulatedLinks`' business.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

from runtime.engine.backend import Drawn, ModelShape, StepResult
from runtime.engine.generation import NoRoom, Progress
from runtime.engine.noise import mixed
from runtime.engine.pages import BlockTable, KvCacheManager
from runtime.engine.sequence import RequestKey, Sequence, Work, active_between_borders
from runtime.protocol.data import DTYPE_BYTES, DType, Reason, Sampling
from runtime.protocol.emulation import Emulation, EmulationRefused

_HIDDEN_SIZE = 1
_DTYPE = DType.FLOAT16


class EmulatedRunner:
    """The backend of an emulated stage, which takes the time a model would.

    Implements `Backend` and `Holdings`. `clock` and `sleep` are in seconds.
    """

    emulated = True
    engine = "emulated"
    runs_beside = True

    def __init__(
        self,
        emulation: Emulation,
        *,
        first: int,
        end: int,
        page_tokens: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises EmulationRefused for more layers than the profile holds."""
        self._emulation = emulation
        self._first = first
        self._end = end
        self.held: frozenset[int] = frozenset(range(first, end))
        self._clock = clock
        self._sleep = sleep
        self.kv_manager = KvCacheManager(
            pages=emulation.pages(self.held, page_tokens=page_tokens),
            page_tokens=page_tokens,
            prepare=lambda pages: None,
        )

    @property
    def shape(self) -> ModelShape:
        return ModelShape(
            first=self._first,
            end=self._end,
            num_layers=self._emulation.model.num_layers,
            hidden_size=_HIDDEN_SIZE,
            vocab_size=self._emulation.vocab_size,
            dtype=_DTYPE,
        )

    @property
    def weights_bytes(self) -> int:
        return int(self._emulation.model.bytes_per_layer * len(self.held))

    @property
    def kv_bytes(self) -> int:
        """What is left of the emulated memory, as far as it is told."""
        return max(0, int(self._emulation.profile.vram_bytes) - self.weights_bytes)

    def is_ready(self, sequence: Sequence) -> bool:
        return True

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        ends_s = self._clock() + step_s(step, self._emulation) * self._emulation.time_scale
        drawn, failed = {}, {}
        for index, work in enumerate(step):
            sampling = work.sequence.route.sampling
            if not (work.sequence.is_last_stage and work.chunk.is_sampled):
                continue
            if sampling.grammar:
                failed[index] = Reason.GRAMMAR_FAILED  # made-up tokens follow none
                continue
            token_id = made_up_token(
                sampling, position=work.chunk.end, vocab_size=self._emulation.vocab_size
            )
            drawn[index] = Drawn(token_id=token_id)
        result = StepResult(rows=_NoRows(), drawn=drawn, failed=failed)

        def end() -> StepResult:
            self._sleep(max(0.0, ends_s - self._clock()))
            return result

        return end

    def forget(self, key: RequestKey) -> None:
        """Nothing is kept of a request but its pages."""

    def pages_beside(self, ranges: Items[range]) -> int:
        """See `Holdings`: what the profile leaves with so many layers."""
        held: set[int] = set().union(*ranges)
        try:
            return self._emulation.pages(held, page_tokens=self.kv_manager.page_tokens)
        except EmulationRefused as error:
            raise NoRoom(str(error)) from error

    def resize(self, pages: int, tables: Iterable[BlockTable]) -> None:
        """See `Holdings`."""
        self.kv_manager.resize(pages, tables)

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """See `Holdings`; at once, as a stage that is started emulated has its layers at once."""
        more = frozenset(itertools.chain.from_iterable(runs))
        progress(0, 0)

        def put_into_place() -> None:
            self.held |= more

        return put_into_place

    def keep(self, ranges: Items[range]) -> None:
        """See `Holdings`."""
        self.held &= set().union(*ranges)


def step_s(step: Items[Work], emulation: Emulation) -> float:
    """Seconds of the emulated machine for a step, layer by layer.

    A layer takes the time of the prompt tokens that run it and of the decodes that run it; a
    request that enters or leaves within the stage counts only where it runs (Helix §4.3). Handling
    and hops are not added: the loop and the transport are real.
    """
    times = emulation.layer_times
    seconds = emulation.step_overhead_s
    is_prompt = [work.is_prompt for work in step]
    seconds += max(times.prompt_step_s * any(is_prompt), times.decode_step_s * (not all(is_prompt)))
    seconds += times.head_s * any(work.sequence.is_last_stage for work in step)
    for layers, active in active_between_borders(step):
        works = [step[index] for index in active]
        prompt_tokens = sum(work.chunk.n_tokens for work in works if work.is_prompt)
        decodes = sum(work.chunk.n_tokens for work in works) - prompt_tokens
        prompt_s = times.prompt_s(prompt_tokens)
        decode_s = times.decode_s(max(decodes, times.least_decodes)) if decodes else 0.0
        if prompt_tokens and not decodes:
            prompt_s = max(prompt_s, times.decode_s(times.least_decodes))
        seconds += len(layers) * (prompt_s + decode_s)
    arrived = sum(work.chunk.n_tokens for work in step if not work.sequence.is_first_stage)
    row_bytes = emulation.model.activation_bytes_per_token
    return seconds + arrived * row_bytes * emulation.host_copy_s_per_byte


def made_up_token(sampling: Sampling, *, position: int, vocab_size: int) -> int:
    """A token for `position` that does not end the answer."""
    token_id = mixed(sampling.seed, position) % vocab_size
    for candidate in range(token_id, token_id + len(sampling.stop_token_ids) + 1):
        if candidate % vocab_size not in sampling.stop_token_ids:
            return candidate % vocab_size
    return token_id


class _NoRows:
    """Implements `Rows` with zeros."""

    def gather(self, spans: Items[tuple[int, int]]) -> bytes:
        rows = sum(end - start for start, end in spans)
        return bytes(rows * _HIDDEN_SIZE * DTYPE_BYTES[_DTYPE])
