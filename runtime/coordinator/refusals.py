"""Why a request is not taken, and what a stage's NACK means to a client."""

from runtime.protocol.data import Reason
from runtime.protocol.openai import ApiError

_RETRY_AFTER_S = 2.0

NACKS = {  # reason -> (code, what the node did and what the client may do)
    Reason.NO_KV_PAGES: (
        "no_kv_pages",
        "ran out of KV cache pages; try again, or with a shorter prompt",
    ),
    Reason.UNKNOWN_REQUEST: (
        "unknown_request",
        "does not know the request, it was probably restarted; try again",
    ),
    Reason.WRONG_GENERATION: (
        "wrong_generation",
        "is changing to another plan; try again shortly",
    ),
    Reason.PREEMPTED: (
        "preempted",
        "gave its KV cache to older requests again and again; try again when there is less to do",
    ),
    Reason.PREFIX_GONE: (
        "prefix_gone",
        "no longer has the prompt's beginning, however often it is sent; try again",
    ),
    Reason.NOT_A_NUMBER: (
        "not_a_number",
        "computed values that are no numbers for this prompt; the model's weights or its precision "
        "may be at fault: the node's log has the remedy",
    ),
    Reason.GRAMMAR_FAILED: (
        "grammar_failed",
        "cannot keep the answer within its schema, which became too complex during this answer, or "
        "the node only emulates a model; use fewer references, combined patterns or alternatives",
    ),
    Reason.STAGE_ERROR: (
        "stage_error",
        "failed while computing; its log says why",
    ),
}


_OF_THE_REQUEST = frozenset({"grammar_failed"})  # no retry changes it
_INTERNAL = frozenset({"not_a_number", "stage_error", "token_stream_broken"})


class RequestFailed(ApiError):
    """A request was accepted and cannot go on; the message says why and what the client may do."""

    def __init__(self, message: str, *, code: str) -> None:
        status = 400 if code in _OF_THE_REQUEST else 500 if code in _INTERNAL else 503
        retry_after_s = _RETRY_AFTER_S if status == 503 else None
        super().__init__(message=message, code=code, status=status, retry_after_s=retry_after_s)


class NotServing(ApiError):
    """There is no plan, or the first one's stages have not all reported yet."""

    def __init__(self, message: str) -> None:
        super().__init__(message=message, code="not_ready", retry_after_s=_RETRY_AFTER_S)


class QueueFull(ApiError):
    """No route is free and enough requests wait already, in all or of this API key."""

    def __init__(self, *, waiting: int, own: int, retry_after_s: int) -> None:
        message = (
            f"all pipelines are full and {waiting} requests are waiting already, {own} of them of "
            f"this API key; try again in {retry_after_s} s"
        )
        super().__init__(message=message, code="queue_full", retry_after_s=retry_after_s)


class NeverFits(ApiError):
    """The request needs more KV cache than any route has, even when idle."""

    def __init__(self, message: str) -> None:
        super().__init__(message=message, code="kv_capacity_exceeded")
