"""What a client is answered where no instance gives an answer, and when a token is late."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from runtime.front.target import InstanceFailed, TooSlow
from runtime.protocol.openai import ApiError

INSTANCE_HEADER = "x-helix-instance"
RETRY_AFTER_S = 2.0
_START_RETRY_S = 10.0  # where nothing is known of how long a start takes
_LONGEST_RETRY_S = 600.0


def stopping() -> ApiError:
    return ApiError(
        message="the front is stopping; try again", code="stopping", retry_after_s=RETRY_AFTER_S
    )


def all_full(told: str, *, retry_after_s: float = RETRY_AFTER_S) -> ApiError:
    return ApiError(
        message=f"all instances are full ({told}); try again later",
        code="queue_full",
        retry_after_s=retry_after_s,
    )


def none_ready(states: Mapping[str, str], *, opens_in_s: float | None) -> ApiError:
    """`states`: how each instance is. `opens_in_s`: when one is expected, if that is known."""
    again_s = _START_RETRY_S if opens_in_s is None else opens_in_s
    again_s = min(_LONGEST_RETRY_S, max(RETRY_AFTER_S, again_s))
    told = "; ".join(f"{name}: {words}" for name, words in states.items())
    return ApiError(
        message=f"no instance is ready ({told}); try again in {again_s:.0f} s",
        code="not_ready",
        retry_after_s=again_s,
    )


def too_slow(instance: str, error: TooSlow) -> ApiError:
    return ApiError(message=f"instance {instance}: {error}, or for a stream", code="too_slow")


def broken(instance: str, error: Exception) -> ApiError:
    return ApiError(
        message=f"instance {instance} broke off: {error}; what was written so far stands, ask "
        "again for the rest",
        code="stream_broken",
    )


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
