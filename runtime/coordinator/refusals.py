"""Why a request is not taken, and what a stage's NACK means to a client."""

from runtime.protocol.data import Reason
from runtime.protocol.openai import ApiError

NOT_READY_RETRY_S = 2.0

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


class NotServing(Exception):
    """There is no plan, or the first one's stages have not all reported yet."""


class QueueFull(Exception):
    """No route is free and enough requests wait already, in all or of this API key."""

    def __init__(self, *, waiting: int, own: int, retry_after_s: int) -> None:
        super().__init__(
            f"all pipelines are full and {waiting} requests are waiting already, {own} of them of "
            f"this API key; try again in {retry_after_s} s"
        )
        self.retry_after_s = retry_after_s


class NeverFits(Exception):
    """The request needs more KV cache than any route has, even when idle."""


def refused(error: NotServing | QueueFull | NeverFits) -> ApiError:
    """Why the dispatcher does not take a request."""
    if isinstance(error, NotServing):
        return ApiError(message=str(error), code="not_ready", retry_after_s=NOT_READY_RETRY_S)
    if isinstance(error, QueueFull):
        return ApiError(message=str(error), code="queue_full", retry_after_s=error.retry_after_s)
    return ApiError(message=str(error), code="kv_capacity_exceeded")
