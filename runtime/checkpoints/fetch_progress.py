"""How far a fetch of weights is."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator

from runtime.checkpoints.weight_store import TensorPart
from runtime.protocol.weight_fetch import WeightFetch

_TELL_BYTES = 8 << 20  # between two calls of `progress`
# (bytes that are here, bytes wanted); may raise to stop
Progress = Callable[[int, int], None]
# is called with the state of a fetch after every few bytes
Tell = Callable[[WeightFetch], None]


class FetchProgress:
    """The bytes of all wanted tensors, for `progress` and `tell`, called every few of them."""

    def __init__(
        self,
        progress: Progress,
        tell: Tell,
        told: WeightFetch,
        parts: Collection[TensorPart],
        offered: int,
    ) -> None:
        """`told` is of fetches before, `offered` the bytes that other nodes have."""
        self._progress, self._tell = progress, tell
        self.total = sum(part.data_bytes for part in parts) + offered
        self.done = self._shown = sum(part.held_bytes() for part in parts)
        self._step = min(self.total // 200, _TELL_BYTES)
        self._began_s, self._fetched = time.monotonic(), 0
        needed = told.needed_bytes + self.total - self.done
        self.told = told.model_copy(update={"needed_bytes": needed, "eta_s": None})
        self._show()

    def begin(self, source: str) -> None:
        """What comes next is from there."""
        self.told = self.told.model_copy(update={"source": source})

    def counted(self, pieces: Iterable[bytes], source: str) -> Iterator[bytes]:
        """The same bytes, counted as they pass."""
        self.begin(source)
        for piece in pieces:
            yield piece
            self.add(len(piece))

    def expect(self, more: int) -> None:
        """So many bytes more are wanted than was known."""
        self.total += more
        self.told = self.told.model_copy(update={"needed_bytes": self.told.needed_bytes + more})

    def take_back(self, count: int) -> None:
        """So many bytes of the source were deleted, as they were wrong or not whole."""
        self._book(-count)
        self._shown = self.done

    def add(self, count: int) -> None:
        """So many bytes of the source were stored."""
        self._book(count)
        if self.done - self._shown >= self._step or self.done == self.total:
            self._shown = self.done
            self._show()

    def _book(self, count: int) -> None:
        self.done += count
        self._fetched += count
        source, fetched = self.told.source, dict(self.told.fetched)
        fetched[source] = fetched.get(source, 0) + count
        stored = {name: size for name, size in fetched.items() if size}
        self.told = self.told.model_copy(update={"fetched": stored})

    def _show(self) -> None:
        elapsed_s = time.monotonic() - self._began_s
        left = self.total - self.done
        eta_s = left * elapsed_s / self._fetched if self._fetched > 0 else None
        self.told = self.told.model_copy(update={"eta_s": eta_s if left else None})
        self._tell(self.told)
        self._progress(self.done, self.total)
