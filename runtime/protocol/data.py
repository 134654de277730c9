"""Frames between stages and to the coordinator: fixed little-endian binary, no pickle, no JSON.

A message is two ZeroMQ frames:

    [header | entries | routes]  [payload]

One message carries every decode that goes to the same next hop in one step, another one the rows of
prompts (flag PREFILL), so that a link can send decodes first. A request's route and
sampling parameters travel with its first entry (flag ROUTE) and never again in the same epoch; what
few requests need follows behind the route (flag EXTENDED), and then who is told of it, if that is
not the first coordinator (flag ELSEWHERE).

    kind      from -> to                    payload
    PROMPT    coordinator -> first stage    token ids, int32
    ROWS      stage -> next stage           activations (hidden + residual, summed), `dtype`
    SAMPLED   last stage -> first stage     one int32 token id per entry; then, to the
              and coordinator               coordinator, what `sampled` says of their logprobs
    RELEASE   coordinator -> stages         empty: forget the request, free its pages
    NACK      stage -> coordinator          empty: `reason` says why the request cannot go on
    STATUS    stage -> coordinator          `StageStatus`, about once a second
    TRACE     stage -> coordinator          `stage_spans` of one request, if its RELEASE asked
    LOST_LINKS  stage -> coordinator        `lost_links`: peers it sends to and cannot reach
    MEASURE   coordinator -> stage          `measure_order`: a link that nothing is sent over
    RETIRE    coordinator -> stage          forget the header's generation, its requests, and the
                                            layers that no other generation here needs; empty, or
                                            what a LEAVING said: it is meant for that process alone
    LEAVING   stage -> coordinator          `life_of` its incarnation: it ends soon, and serves the
                                            header's generation; said until that is retired

A stage may serve several generations of one checkpoint at once. It sends STATUS for each of them;
the coordinator answers one that it wants no more with RETIRE, again each time. LOST_LINKS is of the
stage, whatever generation its header has.

Of several coordinators each gets STATUS and LOST_LINKS, and of requests what is of its own; RETIRE
is done when all that live have said it.
"""

import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag

from planner.domain.cluster import COORDINATOR
from runtime.protocol.frame_error import FrameError
from runtime.protocol.routes import (
    Route,
    decode_extension,
    decode_name,
    decode_route,
    encode_extension,
    encode_name,
    encode_route,
)

MAGIC = b"HLX1"
_HEADER = struct.Struct("<4sBBHIQ")  # magic, kind, dtype, entries, generation, payload bytes
_ENTRY = struct.Struct("<QIIIBBH")  # request, epoch, position, n_tokens, hop, flags, reason
_STATUS = struct.Struct("<IIIIII")
_ELSEWHERE = struct.Struct("<I")  # behind it, unless it is 0

MAX_ENTRIES = 65535


class Kind(IntEnum):
    """What a message between stages and coordinators is."""

    PROMPT = 1
    ROWS = 2
    SAMPLED = 3
    RELEASE = 4
    NACK = 5
    STATUS = 6
    TRACE = 7
    LOST_LINKS = 8
    MEASURE = 9
    RETIRE = 10
    LEAVING = 11


class DType(IntEnum):
    """The type of the numbers in a payload."""

    NONE = 0
    INT32 = 1
    FLOAT32 = 2
    FLOAT16 = 3
    BFLOAT16 = 4


DTYPE_BYTES = {
    DType.NONE: 0,
    DType.INT32: 4,
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
}


class Flag(IntFlag):
    """What is special about an entry."""

    NONE = 0
    ROUTE = 1  # a route follows for this entry
    PROMPT_END = 2  # the last row of this entry is to be sampled from
    FINISHED = 4  # SAMPLED: no token follows this one
    EXTENDED = 8  # an extension follows the route of this entry; set and taken off here
    LOGPROBS = 16  # SAMPLED: logprobs of this token follow the token ids
    PREFILL = 32  # ROWS: of a prompt; they may wait where decodes must not
    TRACED = 64  # RELEASE: answer with a TRACE of the request
    ELSEWHERE = 128  # a coordinator's name follows the route; set and taken off here


# As numbers: operations on flags are slow, and these are for every token.
_ROUTE, _EXTENDED, _ELSEWHERE_FLAG = int(Flag.ROUTE), int(Flag.EXTENDED), int(Flag.ELSEWHERE)
_BEHIND_ROUTES = _EXTENDED | _ELSEWHERE_FLAG


class Reason(IntEnum):
    """Why a request ended or cannot go on."""

    NONE = 0
    STOP = 1  # SAMPLED: an end-of-sequence or stop token id
    LENGTH = 2  # SAMPLED: max_tokens reached
    NO_KV_PAGES = 3  # NACK
    UNKNOWN_REQUEST = 4  # NACK: no route for this (request, epoch) here
    WRONG_GENERATION = 5  # NACK: the stage does not serve this generation
    STAGE_ERROR = 6  # NACK: the step failed; the stage logs why
    PREEMPTED = 7  # NACK: its pages went to an older request; to be begun anew with its tokens
    PREFIX_GONE = 8  # NACK: pages of its prompt are no longer here; to be begun anew
    NOT_A_NUMBER = 9  # NACK: the model's logits for it are no numbers
    GRAMMAR_FAILED = 10  # NACK: its answer cannot be kept within its grammar; the log says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`n_tokens` consecutive rows of a request, the first at `position` of its sequence.

    `hop` is the index in the route of the stage that shall act on the entry. SAMPLED: `position`
    is where the new token stands in the sequence, n_tokens is 1.
    """

    request: int
    epoch: int
    position: int
    n_tokens: int
    hop: int
    flags: Flag = Flag.NONE
    reason: Reason = Reason.NONE
    route: Route | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    """A stage serves the header's generation; its room in pages (a page: one layer of one request).

    Layers [first, end) are that generation's; pages are shared by all generations of the stage,
    and `pages_total` changes while layers of another are loaded beside. `incarnation` is drawn when
    the process starts: another one means that the stage was restarted and has forgotten every
    request. `pages_elsewhere` are not to be had by who is told this: requests of other coordinators
    hold them, or are next.
    """

    incarnation: int
    first: int
    end: int
    page_tokens: int
    pages_total: int
    pages_used: int
    pages_elsewhere: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; `payload` is any bytes-like object, sent and received without a copy."""

    kind: Kind
    generation: int
    entries: tuple[Entry, ...] = ()
    dtype: DType = DType.NONE
    payload: bytes | bytearray | memoryview = field(default=b"", repr=False)
    status: StageStatus | None = None

    @property
    def is_prefill(self) -> bool:
        """Whether it carries a prompt or rows of prompts; decodes go in messages of their own."""
        return self.kind == Kind.PROMPT or any(
            Flag.PREFILL in entry.flags for entry in self.entries
        )


def encode(message: Message) -> tuple[bytes, bytes | bytearray | memoryview]:
    """Message -> (head frame, payload frame). Raises FrameError for what the format cannot hold."""
    if len(message.entries) > MAX_ENTRIES:
        raise FrameError(f"{len(message.entries)} entries; at most {MAX_ENTRIES} fit one message")
    try:
        return _encode_head(message), message.payload
    except struct.error as error:
        raise FrameError(f"a number does not fit its field: {error} in {message}") from error


def _encode_head(message: Message) -> bytes:
    parts = [
        _HEADER.pack(
            MAGIC,
            message.kind,
            message.dtype,
            len(message.entries),
            message.generation,
            memoryview(message.payload).nbytes,
        )
    ]
    routes = []
    for entry in message.entries:
        flags = int(entry.flags) & ~(_ROUTE | _BEHIND_ROUTES)
        if entry.route is not None:
            flags |= _ROUTE
            routes.append(encode_route(entry.route))
            extension = encode_extension(entry.route)
            if extension:
                flags |= _EXTENDED
                routes.append(extension)
            if entry.route.coordinator != COORDINATOR:
                flags |= _ELSEWHERE_FLAG
                routes.append(encode_name(entry.route.coordinator))
        parts.append(
            _ENTRY.pack(
                entry.request,
                entry.epoch,
                entry.position,
                entry.n_tokens,
                entry.hop,
                flags,
                entry.reason,
            )
        )
    parts += routes
    if message.status is not None:
        status = message.status
        parts.append(
            _STATUS.pack(
                status.incarnation,
                status.first,
                status.end,
                status.page_tokens,
                status.pages_total,
                status.pages_used,
            )
        )
        if status.pages_elsewhere:
            parts.append(_ELSEWHERE.pack(status.pages_elsewhere))
    return b"".join(parts)


def decode(head: bytes | memoryview, payload: bytes | memoryview) -> Message:
    """(head frame, payload frame) -> Message; `payload` is kept as it is. Raises FrameError."""
    view = memoryview(head)
    try:
        magic, kind, dtype, count, generation, payload_bytes = _HEADER.unpack_from(view, 0)
        if magic != MAGIC:
            raise FrameError(
                f"frame begins with {bytes(magic)!r}, not {MAGIC!r}; both ends must be of one "
                "release"
            )
        entries, offset = _decode_entries(view, count)
        status = None
        if kind == Kind.STATUS:
            status, offset = _decode_status(view, offset)
        message = Message(
            kind=Kind(kind),
            generation=generation,
            entries=entries,
            dtype=DType(dtype),
            payload=payload,
            status=status,
        )
    except FrameError:
        raise
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise FrameError(f"malformed frame of {len(view)} bytes: {error}") from error
    if offset != len(view):
        raise FrameError(f"{len(view) - offset} bytes follow the end of the head frame")
    if memoryview(payload).nbytes != payload_bytes:
        raise FrameError(
            f"payload has {memoryview(payload).nbytes} bytes, its header says {payload_bytes}"
        )
    return message


def _decode_entries(view: memoryview, count: int) -> tuple[tuple[Entry, ...], int]:
    """The entries, and where what follows their routes begins."""
    offset = _HEADER.size + count * _ENTRY.size
    entries = []
    for at in range(_HEADER.size, offset, _ENTRY.size):
        request, epoch, position, n_tokens, hop, bits, reason = _ENTRY.unpack_from(view, at)
        route = None
        if bits & _ROUTE:
            route, offset = decode_route(view, offset)
        if route is None and bits & _BEHIND_ROUTES:
            raise FrameError("an entry has an extension or a coordinator but no route")
        if route is not None and bits & _EXTENDED:
            route, offset = decode_extension(view, offset, route)
        if route is not None and bits & _ELSEWHERE_FLAG:
            name, offset = decode_name(view, offset)
            route = replace(route, coordinator=name)
        entries.append(
            Entry(
                request=request,
                epoch=epoch,
                position=position,
                n_tokens=n_tokens,
                hop=hop,
                flags=Flag(bits & ~_BEHIND_ROUTES),
                reason=Reason(reason),
                route=route,
            )
        )
    return tuple(entries), offset


def _decode_status(view: memoryview, offset: int) -> tuple[StageStatus, int]:
    incarnation, first, end, page_tokens, total, used = _STATUS.unpack_from(view, offset)
    offset += _STATUS.size
    elsewhere = 0
    if offset < len(view):
        (elsewhere,) = _ELSEWHERE.unpack_from(view, offset)
        offset += _ELSEWHERE.size
    status = StageStatus(
        incarnation=incarnation,
        first=first,
        end=end,
        page_tokens=page_tokens,
        pages_total=total,
        pages_used=used,
        pages_elsewhere=elsewhere,
    )
    return status, offset
