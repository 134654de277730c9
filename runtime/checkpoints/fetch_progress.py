"""How far a fetch of weights is."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

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
        missing: Mapping[str, int],
        held_bytes: int,
    ) -> None:
        """`told` is of fetches before, `missing` the bytes by tensor beside the `held_bytes`."""
        self._progress, self._tell = progress, tell
        self._missing = dict(missing)
        self.left = sum(missing.values())
        self.done = self._shown = held_bytes
        self._step = min((self.done + self.left) // 200, _TELL_BYTES)
        self._began_s, self._fetched = time.monotonic(), 0
        self._needed_before = told.needed_bytes
        self.told = told
        self._show()

    def begin(self, source: str) -> None:
        """What comes next is from there."""
        self.told = self.told.model_copy(update={"source": source})

    def counted(self, name: str, pieces: Iterable[bytes], source: str) -> Iterator[bytes]:
        """The same bytes of a tensor, counted as they pass."""
        self.begin(source)
        for piece in pieces:
            yield piece
            self.add(name, len(piece))

    def expect(self, name: str, missing: int) -> None:
        """So many bytes of a tensor are missing: sources have it with headers of other sizes."""
        self.left += missing - self._missing[name]
        self._missing[name] = missing

    def add(self, name: str, count: int) -> None:
        """So many bytes of a tensor were stored; below 0: deleted, as they were wrong."""
        self._missing[name] -= count
        self.left -= count
        self.done += count
        self._fetched += count
        source, fetched = self.told.source, dict(self.told.fetched)
        fetched[source] = fetched.get(source, 0) + count
        stored = {each: size for each, size in fetched.items() if size}
        self.told = self.told.model_copy(update={"fetched": stored})
        self._shown = min(self._shown, self.done)
        if self.done - self._shown >= self._step or not self.left:
            self._shown = self.done
            self._show()

    def _show(self) -> None:
        elapsed_s = time.monotonic() - self._began_s
        eta_s = self.left * elapsed_s / self._fetched if self._fetched > 0 and self.left else None
        needed = self._needed_before + self._fetched + self.left
        self.told = self.told.model_copy(update={"needed_bytes": needed, "eta_s": eta_s})
        self._tell(self.told)
        self._progress(self.done, self.done + self.left)
