"""Frames between stages and to the coordinator: fixed little-endian binary, no pickle, no JSON.

A message is two ZeroMQ frames:

    [header | entries | routes]  [payload]

One message carries every row that goes to the same next hop in one step. A request's route and
sampling parameters travel with its first entry (flag ROUTE) and never again in the same epoch.

    kind      from -> to                    payload
    PROMPT    coordinator -> first stage    token ids, int32
    ROWS      stage -> next stage           activations (hidden + residual, summed), `dtype`
    SAMPLED   last stage -> first stage     one int32 token id per entry
              and coordinator
    RELEASE   coordinator -> stages         empty: forget the request, free its pages
    NACK      stage -> coordinator          empty: `reason` says why the request cannot go on
    STATUS    stage -> coordinator          `StageStatus`, about once a second
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

MAGIC = b"HLX1"
_HEADER = struct.Struct("<4sBBHIQ")  # magic, kind, dtype, entries, generation, payload bytes
_ENTRY = struct.Struct("<QIIIBBH")  # request, epoch, position, n_tokens, hop, flags, reason
_ROUTE_HEAD = struct.Struct("<BffIQIIB")  # hops, temperature, top_p, top_k, seed, ...
_HOP = struct.Struct("<HHB")  # first, end, name length
_STATUS = struct.Struct("<IIIIII")

MAX_ENTRIES = 65535
MAX_HOPS = 255


class FrameError(ValueError):
    """A frame that is not ours, cut short, or contradicts itself."""


class Kind(IntEnum):
    PROMPT = 1
    ROWS = 2
    SAMPLED = 3
    RELEASE = 4
    NACK = 5
    STATUS = 6


class DType(IntEnum):
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
    NONE = 0
    ROUTE = 1  # a route follows for this entry
    PROMPT_END = 2  # the last row of this entry is to be sampled from
    FINISHED = 4  # SAMPLED: no token follows this one


class Reason(IntEnum):
    NONE = 0
    STOP = 1  # SAMPLED: an end-of-sequence or stop token id
    LENGTH = 2  # SAMPLED: max_tokens reached
    NO_KV_PAGES = 3  # NACK
    UNKNOWN_REQUEST = 4  # NACK: no route for this (request, epoch) here
    WRONG_GENERATION = 5  # NACK: the stage runs another generation
    STAGE_ERROR = 6  # NACK: the step failed; the stage logs why


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One stage of the route and the layers [first, end) to run there."""

    node: str
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the last stage picks tokens. temperature 0 is greedy; top_k 0 and top_p 1 are off.

    Noise is seeded by (seed, position), so neither batch nor node changes the draw.
    """

    temperature: float
    top_p: float
    top_k: int
    seed: int
    max_tokens: int
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The path of a request, how long its prompt is, and how to sample."""

    hops: tuple[Hop, ...]
    sampling: Sampling
    prompt_tokens: int


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
    """A stage serves its generation; its room in pages (a page: one layer of one request).

    `incarnation` is drawn when the process starts: another one means that the stage was restarted
    and has forgotten every request.
    """

    incarnation: int
    first: int
    end: int
    page_tokens: int
    pages_total: int
    pages_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; `payload` is any bytes-like object, sent and received without a copy."""

    kind: Kind
    generation: int
    entries: tuple[Entry, ...] = ()
    dtype: DType = DType.NONE
    payload: bytes | bytearray | memoryview = field(default=b"", repr=False)
    status: StageStatus | None = None


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
        flags = entry.flags & ~Flag.ROUTE
        if entry.route is not None:
            flags |= Flag.ROUTE
            routes.append(_encode_route(entry.route))
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
    return b"".join(parts)


def decode(head: bytes | memoryview, payload: bytes | memoryview) -> Message:
    """(head frame, payload frame) -> Message; `payload` is kept as it is. Raises FrameError."""
    view = memoryview(head)
    try:
        magic, kind, dtype, count, generation, payload_bytes = _HEADER.unpack_from(view, 0)
        if magic != MAGIC:
            raise FrameError(f"frame begins with {bytes(magic)!r}, not {MAGIC!r}")
        offset = _HEADER.size
        raw = []
        for _ in range(count):
            raw.append(_ENTRY.unpack_from(view, offset))
            offset += _ENTRY.size
        entries = []
        for request, epoch, position, n_tokens, hop, flag_bits, reason in raw:
            flags = Flag(flag_bits)
            route = None
            if Flag.ROUTE in flags:
                route, offset = _decode_route(view, offset)
            entries.append(
                Entry(
                    request=request,
                    epoch=epoch,
                    position=position,
                    n_tokens=n_tokens,
                    hop=hop,
                    flags=flags,
                    reason=Reason(reason),
                    route=route,
                )
            )
        status = None
        if kind == Kind.STATUS:
            incarnation, first, end, page_tokens, total, used = _STATUS.unpack_from(view, offset)
            offset += _STATUS.size
            status = StageStatus(
                incarnation=incarnation,
                first=first,
                end=end,
                page_tokens=page_tokens,
                pages_total=total,
                pages_used=used,
            )
        message = Message(
            kind=Kind(kind),
            generation=generation,
            entries=tuple(entries),
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


def _encode_route(route: Route) -> bytes:
    if not 1 <= len(route.hops) <= MAX_HOPS:
        raise FrameError(f"route has {len(route.hops)} hops; 1 to {MAX_HOPS} fit")
    sampling = route.sampling
    if len(sampling.stop_token_ids) > 255:
        raise FrameError(f"{len(sampling.stop_token_ids)} stop token ids; at most 255 fit")
    parts = [
        _ROUTE_HEAD.pack(
            len(route.hops),
            sampling.temperature,
            sampling.top_p,
            sampling.top_k,
            sampling.seed,
            sampling.max_tokens,
            route.prompt_tokens,
            len(sampling.stop_token_ids),
        ),
        struct.pack(f"<{len(sampling.stop_token_ids)}I", *sampling.stop_token_ids),
    ]
    for hop in route.hops:
        name = hop.node.encode()
        if len(name) > 255:
            raise FrameError(f"node name {hop.node!r} is longer than 255 bytes")
        parts += [_HOP.pack(hop.first, hop.end, len(name)), name]
    return b"".join(parts)


def _decode_route(view: memoryview, offset: int) -> tuple[Route, int]:
    hop_count, temperature, top_p, top_k, seed, max_tokens, prompt_tokens, stops = (
        _ROUTE_HEAD.unpack_from(view, offset)
    )
    offset += _ROUTE_HEAD.size
    if hop_count == 0:
        raise FrameError("a route has no hops")
    stop_token_ids = struct.unpack_from(f"<{stops}I", view, offset)
    offset += 4 * stops
    hops = []
    for _ in range(hop_count):
        first, end, name_bytes = _HOP.unpack_from(view, offset)
        offset += _HOP.size
        name = bytes(view[offset : offset + name_bytes])
        if len(name) != name_bytes:
            raise FrameError("a node name is cut short")
        offset += name_bytes
        hops.append(Hop(node=name.decode(), first=first, end=end))
    route = Route(
        hops=tuple(hops),
        sampling=Sampling(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            max_tokens=max_tokens,
            stop_token_ids=stop_token_ids,
        ),
        prompt_tokens=prompt_tokens,
    )
    return route, offset
