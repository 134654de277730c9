"""The frames the coordinator writes and reads, as pure functions of a live request."""

import array
import sys

from runtime.coordinator.live_request import LiveRequest
from runtime.protocol.data import DType, Entry, Flag, FrameError, Hop, Kind, Message, Route


def prompt_message(request: LiveRequest) -> Message:
    """The whole prompt and its route, for the first stage. The request must have a pipeline."""
    if request.pipeline is None:
        raise ValueError(f"request {request.id} has no pipeline; route it first")
    token_ids = array.array("i", request.prompt_ids)
    if sys.byteorder == "big":
        token_ids.byteswap()
    entry = Entry(
        request=request.id,
        epoch=request.epoch,
        position=0,
        n_tokens=len(request.prompt_ids),
        hop=0,
        flags=Flag.PROMPT_END,
        route=Route(
            hops=tuple(
                Hop(node=stage.node, first=stage.first, end=stage.end)
                for stage in request.pipeline.stages
            ),
            sampling=request.sampling,
            prompt_tokens=len(request.prompt_ids),
        ),
    )
    return Message(
        kind=Kind.PROMPT,
        generation=request.serving.plan.generation,
        entries=(entry,),
        dtype=DType.INT32,
        payload=token_ids.tobytes(),
    )


def release_message(*, generation: int, request: int, epoch: int) -> Message:
    """Forget the request in this epoch and free its pages."""
    entry = Entry(request=request, epoch=epoch, position=0, n_tokens=0, hop=0)
    return Message(kind=Kind.RELEASE, generation=generation, entries=(entry,))


def sampled_tokens(message: Message) -> list[tuple[Entry, int]]:
    """(entry, token id) of a SAMPLED message. Raises FrameError when they are not as many."""
    payload = memoryview(message.payload)
    if payload.nbytes != 4 * len(message.entries):
        raise FrameError(
            f"SAMPLED carries {payload.nbytes} bytes for {len(message.entries)} tokens of 4 bytes"
        )
    return [
        (entry, int.from_bytes(payload[4 * index : 4 * index + 4], "little", signed=True))
        for index, entry in enumerate(message.entries)
    ]
