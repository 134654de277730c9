"""The errors that a client gets when no instance answers, or one stops in the middle; pure."""

from collections.abc import Mapping

from starlette.responses import Response

from runtime.front.client_stream import INSTANCE_HEADER
from runtime.front.target import Refused, TooSlow
from runtime.protocol.openai import ApiError

RETRY_AFTER_S = 2.0
_START_RETRY_S = 10.0  # where nothing is known of how long a start takes
_LONGEST_RETRY_S = 600.0


def passed_on(refusal: Refused, instance: str) -> Response:
    return Response(
        refusal.content,
        status_code=refusal.status,
        media_type=refusal.media_type,
        headers={INSTANCE_HEADER: instance},
    )


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


def refused_late(refusal: Refused) -> ApiError:
    return ApiError(
        status=refusal.status,
        message=f"the request was refused: {refusal.content[:300].decode(errors='replace')}",
        code="refused",
    )
