"""When a stream that still sends something has gone on without a token for too long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from runtime.front.target import InstanceFailed


class Lateness:
    """Decides whether a stream's next token is late; its answer asks it.

    Of one stream. Comments say that a server lives, not that it writes: before the first token
    they are believed for `first_s`, after it for `next_s`.
    """

    def __init__(self, *, first_s: float, next_s: float, clock: Callable[[], float]) -> None:
        self._patience_s, self._next_s = first_s, next_s
        self._clock = clock
        self._since_s = clock()

    def has_written(self) -> None:
        """A token came."""
        self._patience_s, self._since_s = self._next_s, self._clock()

    def check(self) -> None:
        """Raises InstanceFailed where the next token is late."""
        if self._clock() - self._since_s > self._patience_s:
            raise InstanceFailed(
                f"it sent no token for {self._patience_s:g} s, though its stream went on"
            )

    @contextmanager
    def waiting_for_client(self) -> Iterator[None]:
        """Within, time passes that is not the instance's."""
        began_s = self._clock()
        try:
            yield
        finally:
            self._since_s += self._clock() - began_s
