"""The backend of `docs/extend/backend.md`: it computes nothing, tokens are their positions."""

from collections.abc import Callable
from collections.abc import Sequence as Items

from runtime.engine.backend import Drawn, ModelShape, StepResult
from runtime.engine.pages import KvCacheManager
from runtime.engine.sequence import RequestKey, Sequence, Work
from runtime.protocol.data import DTYPE_BYTES, DType

NUM_LAYERS, VOCAB_SIZE = 4, 1000


class CountingBackend:
    """Implements `Backend`; the stage that it is given to calls it from one thread."""

    weights_bytes = kv_bytes = 0
    emulated = runs_beside = False
    engine = "counting"

    def __init__(self, layers: range, *, pages: int, page_tokens: int) -> None:
        self.kv_manager = KvCacheManager(
            pages=pages, page_tokens=page_tokens, prepare=lambda pages: None
        )
        self.shape = ModelShape(
            first=layers.start,
            end=layers.stop,
            num_layers=NUM_LAYERS,
            hidden_size=1,
            vocab_size=VOCAB_SIZE,
            dtype=DType.FLOAT16,
        )

    def is_ready(self, sequence: Sequence) -> bool:
        return True

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        """A real backend runs layers `work.sequence.first` to `.end` on the rows of each work."""
        drawn = {
            index: Drawn(token_id=work.chunk.end % VOCAB_SIZE)
            for index, work in enumerate(step)
            if work.sequence.is_last_stage and work.chunk.is_sampled
        }
        return lambda: StepResult(rows=_NoRows(), drawn=drawn)

    def forget(self, key: RequestKey) -> None:
        """Nothing is kept of a request but its pages, which the stage frees."""


class _NoRows:
    def gather(self, spans: Items[tuple[int, int]]) -> bytes:
        return bytes(sum(end - start for start, end in spans) * DTYPE_BYTES[DType.FLOAT16])
