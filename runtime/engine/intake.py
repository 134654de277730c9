"""Turns received entries into sequences with rows to run, or says why not.

Knows which requests are here and which have gone, nothing of torch, time or sockets.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from runtime.engine.backend import ModelShape
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import Chunk, RequestKey, Sequence
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.data import DTYPE_BYTES, DType, Entry, Flag, Kind, Message, Reason, Route

logger = logging.getLogger(__name__)

MAX_TOMBSTONES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An entry that cannot be run: a coordinator gets a NACK with `generation` of the sender.

    `coordinator`: whose request it is; None: that is not known here.
    """

    entry: Entry
    reason: Reason
    generation: int
    coordinator: str | None


class _BadEntry(ValueError):
    """An entry that contradicts its route, its sequence or the model."""


class Admit(Protocol):
    """Decides whether a new sequence gets its pages; see `Admission.admit`."""

    def __call__(
        self, sequence: Sequence, *, position: int, token_ids: memoryview | None
    ) -> Reason: ...


class Intake:
    """Owns how requests enter and leave a stage; the stage gives it each message.

    Lets requests in among `running_requests` and ends them; `forget` frees the pages of those.

    `ranges`: the layers of each generation that is served, at any time.
    """

    def __init__(
        self,
        name: str,
        shape: ModelShape,
        *,
        max_context_tokens: int,
        ranges: Mapping[int, range],
        running_requests: RunningRequests,
        admit: Admit,
        forget: Callable[[Sequence], None],
        is_lost: Callable[[str], bool],
    ) -> None:
        """Of the stage `name`. `is_lost`: whether a coordinator is; its requests are refused."""
        self._name = name
        self._shape = shape
        self._max_context_tokens = max_context_tokens
        self._ranges = ranges
        self.running_requests = running_requests
        self._admit = admit
        self._forget = forget
        self._is_lost = is_lost
        self._arrivals = 0
        # requests that ended; their late rows are dropped. Bounded, oldest out first.
        self._tombstones: OrderedDict[RequestKey, None] = OrderedDict()
        self._intruders: set[tuple[str, Kind]] = set()  # told of in the log already

    def accept(
        self, message: Message, *, sender: str, now_s: float, unseen_s: float = 0.0
    ) -> list[Refusal]:
        """Take in one message at `now_s`; returns what must be refused.

        It may have been there for `unseen_s` before.

        What `sender` has no business to send is dropped, not refused: a refusal would end the
        request, and that is not the sender's business either.
        """
        if message.kind in (Kind.PROMPT, Kind.RELEASE) and not is_coordinator(sender):
            self._drop(message.kind, sender)
            return []
        if message.kind == Kind.RELEASE:
            for entry in message.entries:
                self._release(RequestKey(request=entry.request, epoch=entry.epoch), sender=sender)
            return []
        if message.kind not in (Kind.PROMPT, Kind.ROWS, Kind.SAMPLED):
            logger.warning("a stage has no use for a %s message", message.kind.name)
            return []
        if message.generation not in self._ranges:
            return [
                self._refusal(message, entry, Reason.WRONG_GENERATION, sender=sender)
                for entry in message.entries
            ]
        refusals = []
        payload = memoryview(message.payload).cast("B")
        row_bytes = self._row_bytes(message)
        offset = 0
        for entry in message.entries:
            rows = payload[offset : offset + entry.n_tokens * row_bytes]
            offset += entry.n_tokens * row_bytes
            reason = self._accept_entry(
                message, entry, rows, sender=sender, now_s=now_s, unseen_s=unseen_s
            )
            if reason is not Reason.NONE:
                refusals.append(self._refusal(message, entry, reason, sender=sender))
                self.end(RequestKey(request=entry.request, epoch=entry.epoch))
        return refusals

    def end(self, key: RequestKey) -> None:
        """Forget a request, known or not; rows of it that still come are dropped silently."""
        sequence = self.running_requests.remove(key)
        if sequence is not None:
            self._forget(sequence)
        self._tombstones[key] = None
        self._tombstones.move_to_end(key)
        while len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def end_generation(self, generation: int, *, coordinator: str) -> None:
        """Forget all requests of that coordinator's under it."""
        for key, sequence in list(self.running_requests.by_key.items()):
            if (sequence.generation, sequence.route.coordinator) == (generation, coordinator):
                self.end(key)

    def end_orphans(self, *, silent_since_s: float) -> None:
        """Forget requests not heard of since then: their coordinator died and never released."""
        for key, sequence in list(self.running_requests.by_key.items()):
            if sequence.heard_s < silent_since_s and not sequence.pending:
                logger.warning("request %d epoch %d was abandoned", key.request, key.epoch)
                self.end(key)

    def _release(self, key: RequestKey, *, sender: str) -> None:
        """End it, unless it is another coordinator's."""
        sequence = self.running_requests.by_key.get(key)
        if sequence is not None and sequence.route.coordinator != sender:
            self._drop(Kind.RELEASE, sender)
        else:
            self.end(key)

    def _refusal(self, message: Message, entry: Entry, reason: Reason, *, sender: str) -> Refusal:
        key = RequestKey(request=entry.request, epoch=entry.epoch)
        sequence = self.running_requests.by_key.get(key)
        route = entry.route if sequence is None else sequence.route
        coordinator = None if route is None else route.coordinator
        return Refusal(
            entry=entry,
            reason=reason,
            generation=message.generation,
            coordinator=sender if message.kind == Kind.PROMPT else coordinator,
        )

    def _row_bytes(self, message: Message) -> int:
        if message.kind == Kind.ROWS:
            return self._shape.hidden_size * DTYPE_BYTES[self._shape.dtype]
        return DTYPE_BYTES[DType.INT32]

    def _drop(self, kind: Kind, sender: str) -> None:
        if (sender, kind) not in self._intruders:
            self._intruders.add((sender, kind))
            logger.warning("dropped a %s message that is not %r's to send", kind.name, sender)

    def _accept_entry(
        self,
        message: Message,
        entry: Entry,
        rows: memoryview,
        *,
        sender: str,
        now_s: float,
        unseen_s: float,
    ) -> Reason:
        key = RequestKey(request=entry.request, epoch=entry.epoch)
        if key in self._tombstones:
            return Reason.NONE
        sequence = self.running_requests.by_key.get(key)
        if message.kind == Kind.SAMPLED and Flag.FINISHED in entry.flags:
            self._finish(sequence, sender=sender)
            return Reason.NONE
        try:
            route = entry.route if sequence is None else sequence.route
            if route is None:
                return Reason.UNKNOWN_REQUEST
            if sequence is None and message.kind == Kind.PROMPT:
                route = replace(route, coordinator=sender)
            hop = entry.hop if sequence is None else sequence.hop
            if sender != _rightful_sender(message.kind, route, hop=hop):
                self._drop(message.kind, sender)
                return Reason.NONE
            if sequence is None:
                if self._is_lost(route.coordinator):
                    return Reason.PREEMPTED
                sequence = self._open(key, entry, route, generation=message.generation)
                self._check_rows(sequence, message, entry, rows)
                reason = self._admit(
                    sequence,
                    position=entry.position,
                    token_ids=rows if sequence.is_first_stage else None,
                )
                if reason is not Reason.NONE:
                    return reason
                self.running_requests.add(sequence)
            elif sequence.generation != message.generation:
                raise _BadEntry(
                    f"rows of generation {message.generation}, it is of {sequence.generation}"
                )
            else:
                self._check_rows(sequence, message, entry, rows)
            self._append(sequence, message, entry, rows)
            sequence.heard_s = now_s
            sequence.spans.came(
                now_s,
                unseen_s=unseen_s,
                is_prompt=entry.position < sequence.route.prompt_tokens,
            )
        except _BadEntry as error:
            logger.warning("request %d epoch %d refused: %s", entry.request, entry.epoch, error)
            return Reason.STAGE_ERROR
        return Reason.NONE

    def _finish(self, sequence: Sequence | None, *, sender: str) -> None:
        """No token follows; its pages stay until the coordinator releases it."""
        if sequence is not None and sender == sequence.last_stage:
            sequence.is_finished = True

    def _open(self, key: RequestKey, entry: Entry, route: Route, *, generation: int) -> Sequence:
        name, layers = self._name, self._ranges[generation]
        if entry.hop >= len(route.hops):
            raise _BadEntry(f"hop {entry.hop} of a route with {len(route.hops)} hops")
        if not is_coordinator(route.coordinator):
            raise _BadEntry(f"{route.coordinator!r} of its route is no coordinator")
        hop = route.hops[entry.hop]
        if hop.node != name:
            raise _BadEntry(f"hop {entry.hop} of its route is {hop.node!r}, this is {name!r}")
        if sum(other.node == name for other in route.hops) > 1:
            raise _BadEntry(f"its route visits {name!r} more than once")
        if not layers.start <= hop.first < hop.end <= layers.stop:
            raise _BadEntry(
                f"layers [{hop.first}, {hop.end}) wanted, [{layers.start}, {layers.stop}) are "
                f"those of generation {generation} here"
            )
        if (entry.hop == 0) != (hop.first == 0):
            raise _BadEntry(f"hop {entry.hop} of its route begins at layer {hop.first}")
        if (entry.hop == len(route.hops) - 1) != (hop.end == self._shape.num_layers):
            raise _BadEntry(
                f"hop {entry.hop} of {len(route.hops)} ends at layer {hop.end} "
                f"of {self._shape.num_layers}"
            )
        return Sequence(
            key=key,
            generation=generation,
            route=route,
            hop=entry.hop,
            arrival=self._next_arrival(),
        )

    def _check_rows(
        self, sequence: Sequence, message: Message, entry: Entry, rows: memoryview
    ) -> None:
        shape = self._shape
        wanted = shape.dtype if message.kind == Kind.ROWS else DType.INT32
        takes_tokens = message.kind != Kind.ROWS
        if message.dtype != wanted or takes_tokens != sequence.is_first_stage:
            raise _BadEntry(
                f"{message.kind.name} of {message.dtype.name} for hop {sequence.hop}; "
                f"the model's rows are {shape.dtype.name}"
            )
        if entry.n_tokens < 1 or len(rows) != entry.n_tokens * self._row_bytes(message):
            raise _BadEntry(f"{entry.n_tokens} rows announced, {len(rows)} bytes came")
        if entry.position + entry.n_tokens > self._max_context_tokens:
            raise _BadEntry(
                f"{entry.position + entry.n_tokens} tokens; the context holds "
                f"{self._max_context_tokens}"
            )
        if takes_tokens:
            if entry.n_tokens == 1:  # as in most messages
                least = largest = int.from_bytes(rows, "little", signed=True)
            else:
                ids = np.frombuffer(rows, dtype="<i4")
                least, largest = ids.min(), ids.max()
            if least < 0 or largest >= shape.vocab_size:
                raise _BadEntry(f"a token id is outside 0..{shape.vocab_size - 1}")

    def _append(self, sequence: Sequence, message: Message, entry: Entry, rows: memoryview) -> None:
        """Queue the rows that are not here yet: some may come twice, or need not be run."""
        end = entry.position + entry.n_tokens
        if end <= sequence.received:
            return
        if entry.position > sequence.received:
            raise _BadEntry(f"rows from {sequence.received} to {entry.position} are missing")
        chunk = Chunk(
            position=entry.position,
            n_tokens=entry.n_tokens,
            payload=rows,
            is_sampled=(
                Flag.PROMPT_END in entry.flags
                if message.kind == Kind.ROWS
                else end >= sequence.route.prompt_tokens
            ),
            arrival=self._next_arrival(),
        )
        known = sequence.received - entry.position
        self.running_requests.append(sequence, chunk.split(known)[1] if known else chunk)

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals


def _rightful_sender(kind: Kind, route: Route, *, hop: int) -> str:
    """Who sends tokens or rows of a request with `route` to its stage `hop`; empty: no one does."""
    if kind == Kind.PROMPT:
        return route.coordinator
    if kind == Kind.SAMPLED:
        return route.hops[-1].node
    return route.hops[hop - 1].node if 1 <= hop <= len(route.hops) else ""
