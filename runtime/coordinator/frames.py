"""The frames the coordinator writes, as pure functions of a live request."""

import array
import sys
from collections.abc import Iterable
from dataclasses import replace

from runtime.coordinator.live_request import LiveRequest
from runtime.protocol.data import DType, Entry, Flag, Kind, Message
from runtime.protocol.routes import Hop, Route


def prompt_message(request: LiveRequest) -> Message:
    """The prompt, the tokens there are already, and the route, for the first stage.

    The request must have a pipeline.
    """
    if request.pipeline is None:
        raise ValueError(f"request {request.id} has no pipeline; route it first")
    token_ids = array.array("i", [*request.prompt_ids, *request.token_ids])
    if sys.byteorder == "big":
        token_ids.byteswap()
    sampling = request.sampling
    entry = Entry(
        request=request.id,
        epoch=request.epoch,
        position=0,
        n_tokens=len(token_ids),
        hop=0,
        flags=Flag.PROMPT_END,
        route=Route(
            hops=tuple(
                Hop(node=stage.node, first=stage.first, end=stage.end)
                for stage in request.pipeline.stages
            ),
            sampling=replace(
                sampling,
                max_tokens=sampling.max_tokens - len(request.token_ids),
                min_tokens=max(0, sampling.min_tokens - len(request.token_ids)),
                prompt_ids=() if sampling.repetition_penalty == 1 else request.prompt_ids,
                emitted_ids=tuple(request.token_ids) if sampling.needs_history else (),
            ),
            prompt_tokens=len(token_ids),
            block_digests=(request.origin.prefix_salt,) if request.origin.prefix_salt else (),
        ),
    )
    return Message(
        kind=Kind.PROMPT,
        generation=request.serving.plan.generation,
        entries=(entry,),
        dtype=DType.INT32,
        payload=token_ids.tobytes(),
    )


def release_message(
    keys: Iterable[tuple[int, int]], *, generation: int, traced: bool = False
) -> Message:
    """Forget these requests in their epochs and free their pages; `traced`: send a TRACE of each.

    `keys`: request and epoch.
    """
    flags = Flag.TRACED if traced else Flag.NONE
    entries = tuple(
        Entry(request=request, epoch=epoch, position=0, n_tokens=0, hop=0, flags=flags)
        for request, epoch in keys
    )
    return Message(kind=Kind.RELEASE, generation=generation, entries=entries)


def retire_message(generation: int, *, life: bytes) -> Message:
    """Forget this generation, its requests, and the layers that no other one needs.

    `life`, unless it is empty: of the process that is meant, as it said.
    """
    return Message(kind=Kind.RETIRE, generation=generation, payload=life)
