"""What the coordinator sends to stages: prompts, and releases until they are heeded."""

import array
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.serving import Serving
from runtime.protocol.data import DType, Entry, Flag, Kind, Message, Route
from runtime.transport.base import Sender, SendError

RELEASED_KEPT = 4096
RELEASE_AGAIN_S = 2.0  # a token that comes later was not under way when the release went out
_COMPLAINTS_KEPT = 1000
logger = logging.getLogger(__name__)


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
            hops=request.hops,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Release:
    at: float
    generation: int
    nodes: tuple[str, ...]


class StageLink:
    """Sends frames to stages; the dispatcher and its parts call it.

    Remembers which requests were released lately, and what was complained of.
    """

    def __init__(self, *, transport: Sender, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._clock = clock
        # by request and epoch, oldest first
        self._released: OrderedDict[tuple[int, int], _Release] = OrderedDict()
        self._complaints: set[str] = set()

    def send_prompt(self, request: LiveRequest) -> None:
        """To the first stage of its pipeline. Raises ValueError when it was not routed."""
        message = prompt_message(request)
        self._send(request.nodes[0], message)

    def release(self, request: LiveRequest, *, traced: bool) -> None:
        """Have every stage of its pipeline forget it in its present epoch.

        `traced`: and tell first when it ran what of it.
        """
        self._release(
            request.nodes,
            generation=request.serving.plan.generation,
            request=request.id,
            epoch=request.epoch,
            traced=traced,
        )

    def retire(self, nodes: Iterable[str], *, generation: int, life: int | None = None) -> None:
        """Have the stages of `nodes` forget a generation, its requests, and the layers that no
        other one needs; `life`: only the process of that."""
        for node in nodes:
            self._send(node, Message(kind=Kind.RETIRE, generation=generation, life=life))

    def release_stray(self, serving: Serving, sender: str, entry: Entry) -> None:
        """A token came of a request that is not running.

        It ended a moment ago and this is a late token; or its release was lost; or it is of an
        earlier life of this process. In the last two cases stages work in vain: stop them.
        """
        released = self._released.get((entry.request, entry.epoch))
        if released is not None and self._clock() - released.at < RELEASE_AGAIN_S:
            return
        logger.warning("%r works on request %d, unknown here; released", sender, entry.request)
        self._release(
            serving.nodes,
            generation=serving.plan.generation,
            request=entry.request,
            epoch=entry.epoch,
            traced=False,
        )

    def release_again(self, node: str) -> None:
        """`node` was out of reach, so that it may have missed what was released lately."""
        by_generation: dict[int, list[tuple[int, int]]] = {}
        for key, release in self._released.items():
            if node in release.nodes:
                by_generation.setdefault(release.generation, []).append(key)
        for generation, keys in by_generation.items():
            self._send(node, release_message(keys, generation=generation))

    def complain(self, what: str) -> None:
        """Log `what` once per plan: a faulty stage repeats itself many times a second."""
        if what not in self._complaints and len(self._complaints) < _COMPLAINTS_KEPT:
            self._complaints.add(what)
            logger.warning("%s", what)

    def forget_complaints(self) -> None:
        """Another plan: what was wrong with the one before says nothing of it."""
        self._complaints.clear()

    def _release(
        self, nodes: Iterable[str], *, generation: int, request: int, epoch: int, traced: bool
    ) -> None:
        nodes = tuple(nodes)
        key = (request, epoch)
        self._released[key] = _Release(at=self._clock(), generation=generation, nodes=nodes)
        self._released.move_to_end(key)
        while len(self._released) > RELEASED_KEPT:
            self._released.popitem(last=False)
        message = release_message([key], generation=generation, traced=traced)
        for node in nodes:
            self._send(node, message)

    def _send(self, node: str, message: Message) -> None:
        """What cannot be sent is logged; the watchdog ends a request that depends on it."""
        try:
            self._transport.send(node, message)
        except SendError as error:
            self.complain(f"message for {node!r} lost: {error}")
