"""A backend without a model whose rows weigh what a model's would: for links that are there."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace

from runtime.engine.backend import ModelShape, StepResult
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.pages import KvCacheManager
from runtime.engine.sequence import RequestKey, Sequence, Work
from runtime.protocol.data import DTYPE_BYTES


class WideRunner:
    """Implements `Backend`: takes its times and tokens from `inner`, rows of `hidden_size`."""

    def __init__(self, inner: EmulatedRunner, *, hidden_size: int) -> None:
        self._inner = inner
        self._rows = _Zeros(hidden_size * DTYPE_BYTES[inner.shape.dtype])
        self._hidden_size = hidden_size

    @property
    def shape(self) -> ModelShape:
        return replace(self._inner.shape, hidden_size=self._hidden_size)

    @property
    def kv_manager(self) -> KvCacheManager:
        return self._inner.kv_manager

    @property
    def weights_bytes(self) -> int:
        return self._inner.weights_bytes

    @property
    def kv_bytes(self) -> int:
        return self._inner.kv_bytes

    @property
    def emulated(self) -> bool:
        return True

    @property
    def engine(self) -> str:
        return self._inner.engine

    def is_ready(self, sequence: Sequence) -> bool:
        return self._inner.is_ready(sequence)

    @property
    def runs_beside(self) -> bool:
        return self._inner.runs_beside

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        begun = self._inner.begin(step)
        return lambda: replace(begun(), rows=self._rows)

    def forget(self, key: RequestKey) -> None:
        self._inner.forget(key)


class _Zeros:
    """Implements `Rows`."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes

    def gather(self, spans: Items[tuple[int, int]]) -> bytes:
        return bytes(self._row_bytes * sum(end - start for start, end in spans))
