"""Frames between stages and to the coordinator: little-endian binary for each token, no pickle.

A message is two ZeroMQ frames:

    [header | entries | JSON]  [payload]

One message carries every decode that goes to the same next hop in one step, another one the rows of
prompts (flag PREFILL), so that a link can send decodes first. A request's route and
sampling parameters travel with its first entry (flag ROUTE) and never again in the same epoch.
Routes, and what STATUS, LOST_LINKS, MEASURE, RETIRE and LEAVING say, are JSON; other messages have
none.

    kind      from -> to                    payload
    PROMPT    coordinator -> first stage    token ids, int32
    ROWS      stage -> next stage           activations (hidden + residual, summed), `dtype`
    SAMPLED   last stage -> first stage     one int32 token id per entry; then, to the
              and coordinator               coordinator, what `sampled` says of their logprobs
    RELEASE   coordinator -> stages         empty: forget the request, free its pages
    NACK      stage -> coordinator          empty: `reason` says why the request cannot go on
    STATUS    stage -> coordinator          `StageStatus`, about once a second
    TRACE     stage -> coordinator          `stage_spans` of one request, if its RELEASE asked
    LOST_LINKS  stage -> coordinator        empty; `lost_links`: all peers it sends to and cannot
                                            reach, none if it reaches all
    MEASURE   coordinator -> stage          empty; `measure`: a link that nothing is sent over
    RETIRE    coordinator -> stage          forget the header's generation, its requests, and the
                                            layers that no other generation here needs; empty, with
                                            the `life` of a LEAVING meant for that process alone
    LEAVING   stage -> coordinator          empty; it ends soon, and serves the header's generation;
                                            said until that is retired; `life`: its incarnation

A stage may serve several generations of one checkpoint at once. It sends STATUS for each of them;
the coordinator answers one that it wants no more with RETIRE, again each time. LOST_LINKS is of the
stage, for any generation in its header.

Of several coordinators each gets STATUS and LOST_LINKS, and of requests what is of its own; RETIRE
is done when all that live have said it.

The types of what is JSON are its format: pydantic reads and writes them within their bounds.
"""

import struct
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, IntFlag
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from planner.domain.cluster import COORDINATOR
from runtime.protocol.complaints import first_complaint
from runtime.protocol.message import Uint16, Uint32, Uint64

_NEVER = -1e30  # a bias; finite, so that a grammar which allows nothing else still has its way
DIGEST_BYTES = 16
Name = Annotated[str, Field(max_length=255)]
Digest = Annotated[bytes, Field(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
MAGIC = b"HLX2"
_HEADER = struct.Struct("<4sBBHIQ")  # magic, kind, dtype, entries, generation, payload bytes
_ENTRY = struct.Struct("<QIIIBBH")  # request, epoch, position, n_tokens, hop, flags, reason
MAX_ENTRIES = 65535
MAX_PEERS = 4096


class FrameError(ValueError):
    """A frame that is not ours, cut short, or contradicts itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One stage of the route and the layers [first, end) to run there."""

    node: Name
    first: Uint16
    end: Uint16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the last stage picks tokens. temperature 0 is greedy; top_k 0, top_p 1, min_p 0 are off.

    Noise is seeded by (seed, position), so neither batch nor node changes the draw. Presence and
    frequency penalties (0: off) count the tokens sampled, repetition_penalty (1: off) those of the
    prompt as well, which come along as `prompt_ids` if it is on. `emitted_ids` are the tokens
    sampled before a request was begun again, if its sampling depends on them. `logit_bias`:
    (token id, bias). `logprobs`: alternatives to return with each token; None: no logprobs.
    `grammar`: a JSON schema the answer must follow; empty: none. No stop token is among the first
    `min_tokens`, unless the grammar leaves nothing else.
    """

    temperature: float
    top_p: float
    top_k: Uint32
    seed: Uint64
    max_tokens: Uint32
    min_tokens: Uint32 = 0
    stop_token_ids: Annotated[tuple[Uint32, ...], Field(max_length=255)] = ()
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[Uint32, float], ...] = ()
    logprobs: Annotated[int, Field(ge=0, le=127)] | None = None
    grammar: str = ""
    prompt_ids: tuple[Uint32, ...] = field(default=(), repr=False)
    emitted_ids: tuple[Uint32, ...] = field(default=(), repr=False)

    @property
    def has_penalties(self) -> bool:
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )

    @property
    def needs_history(self) -> bool:
        """Whether a token depends on those before it by more than the model."""
        return self.has_penalties or bool(self.grammar)

    def at(self, generated: int) -> "Sampling":
        """How the token behind `generated` sampled ones is picked: `min_tokens` as biases."""
        if generated >= self.min_tokens:
            return self
        stops = tuple((token_id, _NEVER) for token_id in self.stop_token_ids)
        return replace(self, min_tokens=0, logit_bias=self.logit_bias + stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The path of a request, how long its prompt is, and how to sample.

    `block_digests` name the whole blocks (page_tokens tokens) of its prompt, so that stages can
    share their pages; the first stage adds them, and the name of the coordinator that it has the
    prompt from. As the coordinator sends it, there is at most one, which salts those.
    """

    hops: Annotated[tuple[Hop, ...], Field(min_length=1, max_length=255)]
    sampling: Sampling
    prompt_tokens: Uint32
    block_digests: tuple[Digest, ...] = field(default=(), repr=False)
    coordinator: Name = COORDINATOR


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
    LOGPROBS = 16  # SAMPLED: logprobs of this token follow the token ids
    PREFILL = 32  # ROWS: of a prompt; they may wait where decodes must not
    TRACED = 64  # RELEASE: answer with a TRACE of the request


_ROUTE = int(Flag.ROUTE)  # operations on flags are slow, and this is for every token


class Reason(IntEnum):
    """Why a request ended or cannot go on."""

    NONE = 0
    STOP = 1  # SAMPLED: an end-of-sequence or stop token id
    LENGTH = 2  # SAMPLED: max_tokens reached
    NO_KV_PAGES = 3  # NACK
    UNKNOWN_REQUEST = 4  # NACK: no route for this (request, epoch) here
    WRONG_GENERATION = 5  # NACK: the stage does not serve this generation
    STAGE_ERROR = 6  # NACK: the step failed; the stage logs why
    PREEMPTED = 7  # NACK: its pages went to an older request; to be begun again with its tokens
    PREFIX_GONE = 8  # NACK: pages of its prompt are no longer here; to be begun again
    NOT_A_NUMBER = 9  # NACK: the model's logits for it are no numbers
    GRAMMAR_FAILED = 10  # NACK: its answer cannot be kept within its grammar; the log says why


# By their numbers: to make them is slow.
_FLAGS = tuple(map(Flag, range(256)))  # of the field's one byte
_REASONS = tuple(Reason)


class Entry(NamedTuple):
    """`n_tokens` consecutive rows of a request, the first at `position` of its sequence.

    `hop` is the index in the route of the stage that must act on the entry. SAMPLED: `position`
    is where the new token stands in the sequence, n_tokens is 1.

    Three are made for each token; a frozen dataclass takes several times as long to make.
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
    request. `pages_elsewhere` are not available to this coordinator: requests of others hold them,
    or are next.
    """

    incarnation: Uint32
    first: Uint32
    end: Uint32
    page_tokens: Uint32
    pages_total: Uint32
    pages_used: Uint32
    pages_elsewhere: Uint32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOrder:
    """The link to `peer`, with at most so many bytes in at most so many seconds."""

    peer: Annotated[Name, Field(min_length=1)]
    most_bytes: Annotated[int, Field(gt=0, lt=2**64)]
    most_s: Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """What messages of some kinds say beside entries."""

    status: StageStatus | None = None
    lost_links: Annotated[tuple[Name, ...], Field(max_length=MAX_PEERS)] | None = None
    measure: MeasureOrder | None = None
    life: Uint32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tail(_Details):
    """What follows the entries, as JSON; `routes` are those of entries with Flag.ROUTE."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        revalidate_instances="always",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        defer_build=True,
    )

    routes: tuple[Route, ...] = ()


_TAIL = TypeAdapter(_Tail)
_NO_TAIL = _Tail()
_DETAILS = tuple(each.name for each in fields(_Details))
# what a message of these kinds must have, and no other may
_PARTS = {Kind.STATUS: "status", Kind.LOST_LINKS: "lost_links", Kind.MEASURE: "measure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(_Details):
    """One message; `payload` is any bytes-like object, sent and received without a copy."""

    kind: Kind
    generation: int
    entries: tuple[Entry, ...] = ()
    dtype: DType = DType.NONE
    payload: bytes | bytearray | memoryview = field(default=b"", repr=False)

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
    except (struct.error, ValueError) as error:
        raise FrameError(f"a value does not fit its field: {_why(error)} in {message}") from error


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
    parts += [
        _ENTRY.pack(
            entry.request,
            entry.epoch,
            entry.position,
            entry.n_tokens,
            entry.hop,
            int(entry.flags) & ~_ROUTE | (_ROUTE if entry.route is not None else 0),
            entry.reason,
        )
        for entry in message.entries
    ]
    routes = tuple(entry.route for entry in message.entries if entry.route is not None)
    details = _details_of(message)
    if routes or details:
        tail = _Tail(routes=routes, **details)
        parts.append(_TAIL.dump_json(_TAIL.validate_python(tail), exclude_defaults=True))
    return b"".join(parts)


def _details_of(message: _Details) -> dict[str, Any]:
    return {name: value for name in _DETAILS if (value := getattr(message, name)) is not None}


def _why(error: Exception) -> str:
    """In one line, without what was read: that may be a prompt."""
    return first_complaint(error) if isinstance(error, ValidationError) else str(error)


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
        end = _HEADER.size + count * _ENTRY.size
        if end > len(view):
            raise FrameError(f"malformed frame of {len(view)} bytes: {count} entries need {end}")
        tail = _TAIL.validate_json(bytes(view[end:])) if len(view) > end else _NO_TAIL
        details = _details_of(tail)
        message = Message(
            kind=Kind(kind),
            generation=generation,
            entries=_decode_entries(view[_HEADER.size : end], tail.routes),
            dtype=DType(dtype),
            payload=payload,
            **details,
        )
    except FrameError:
        raise
    except (struct.error, ValueError) as error:
        raise FrameError(f"malformed frame of {len(view)} bytes: {_why(error)}") from error
    part = _PARTS.get(message.kind)
    said = [name for name in _PARTS.values() if name in details]
    if said != ([] if part is None else [part]):
        raise FrameError(f"a {message.kind.name} says {', '.join(said) or 'no ' + str(part)}")
    if memoryview(payload).nbytes != payload_bytes:
        raise FrameError(
            f"payload has {memoryview(payload).nbytes} bytes, its header says {payload_bytes}"
        )
    return message


def _decode_entries(view: memoryview, routes: tuple[Route, ...]) -> tuple[Entry, ...]:
    entries, left = [], iter(routes)
    for request, epoch, position, n_tokens, hop, bits, reason in _ENTRY.iter_unpack(view):
        route = next(left, None) if bits & _ROUTE else None
        if route is None and bits & _ROUTE:
            raise FrameError(f"{len(routes)} routes are fewer than entries that announce one")
        why = _REASONS[reason] if reason < len(_REASONS) else Reason(reason)
        entries.append(Entry(request, epoch, position, n_tokens, hop, _FLAGS[bits], why, route))
    if next(left, None) is not None:
        raise FrameError(f"{len(routes)} routes are more than entries that announce one")
    return tuple(entries)
