"""Frames between stages and to the coordinator: fixed little-endian binary, no pickle, no JSON.

A message is two ZeroMQ frames:

    [header | entries | routes]  [payload]

One message carries every decode that goes to the same next hop in one step, another one the rows of
prompts (flag PREFILL), so that a link can send decodes first. A request's route and
sampling parameters travel with its first entry (flag ROUTE) and never again in the same epoch; what
few requests need follows behind the route (flag EXTENDED).

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
    RETIRE    coordinator -> stage          empty: forget the header's generation, its requests,
                                            and the layers that no other generation here needs

A stage may serve several generations of one checkpoint at once. It sends STATUS for each of them;
the coordinator answers one that it wants no more with RETIRE, again each time. LOST_LINKS is of the
stage, whatever generation its header has.
"""

import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag

MAGIC = b"HLX1"
_HEADER = struct.Struct("<4sBBHIQ")  # magic, kind, dtype, entries, generation, payload bytes
_ENTRY = struct.Struct("<QIIIBBH")  # request, epoch, position, n_tokens, hop, flags, reason
_ROUTE_HEAD = struct.Struct("<BffIQIIB")  # hops, temperature, top_p, top_k, seed, ...
_HOP = struct.Struct("<HHB")  # first, end, name length
# min_p, presence, frequency and repetition penalty, logprobs; how many of: biases, bytes of the
# grammar, prompt ids, emitted ids, block digests
_EXTENSION = struct.Struct("<ffffbHIIII")
_BIAS = struct.Struct("<If")  # token id, bias
_STATUS = struct.Struct("<IIIIII")

MAX_ENTRIES = 65535
MAX_HOPS = 255
DIGEST_BYTES = 16


class FrameError(ValueError):
    """A frame that is not ours, cut short, or contradicts itself."""


class Kind(IntEnum):
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
    EXTENDED = 8  # an extension follows the route of this entry; set and taken off by this file
    LOGPROBS = 16  # SAMPLED: logprobs of this token follow the token ids
    PREFILL = 32  # ROWS: of a prompt; they may wait where decodes must not
    TRACED = 64  # RELEASE: answer with a TRACE of the request


class Reason(IntEnum):
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
class Hop:
    """One stage of the route and the layers [first, end) to run there."""

    node: str
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the last stage picks tokens. temperature 0 is greedy; top_k 0, top_p 1, min_p 0 are off.

    Noise is seeded by (seed, position), so neither batch nor node changes the draw. Presence and
    frequency penalties (0: off) count the tokens sampled, repetition_penalty (1: off) those of the
    prompt as well, which come along as `prompt_ids` if it is on. `emitted_ids` are the tokens
    sampled before a request was begun anew, if its sampling depends on them. `logit_bias`:
    (token id, bias). `logprobs`: how many alternatives are told with each token, None: nothing.
    `grammar`: a JSON schema the answer must follow; empty: none.
    """

    temperature: float
    top_p: float
    top_k: int
    seed: int
    max_tokens: int
    stop_token_ids: tuple[int, ...] = ()
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    grammar: str = ""
    prompt_ids: tuple[int, ...] = field(default=(), repr=False)
    emitted_ids: tuple[int, ...] = field(default=(), repr=False)

    @property
    def has_penalties(self) -> bool:
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )

    @property
    def needs_history(self) -> bool:
        """Whether a token depends on those before it by more than the model."""
        return self.has_penalties or bool(self.grammar)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The path of a request, how long its prompt is, and how to sample.

    `block_digests` name the whole blocks (page_tokens tokens) of its prompt, so that stages can
    share their pages; the first stage adds them.
    """

    hops: tuple[Hop, ...]
    sampling: Sampling
    prompt_tokens: int
    block_digests: tuple[bytes, ...] = field(default=(), repr=False)


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
    request.
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
        flags = entry.flags & ~(Flag.ROUTE | Flag.EXTENDED)
        if entry.route is not None:
            flags |= Flag.ROUTE
            routes.append(_encode_route(entry.route))
            extension = _encode_extension(entry.route)
            if extension != _NO_EXTENSION:
                flags |= Flag.EXTENDED
                routes.append(extension)
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
            raise FrameError(
                f"frame begins with {bytes(magic)!r}, not {MAGIC!r}; both ends must be of one "
                "release"
            )
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
            if Flag.EXTENDED in flags:
                if route is None:
                    raise FrameError("an entry has an extension but no route")
                route, offset = _decode_extension(view, offset, route)
                flags &= ~Flag.EXTENDED
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


def _encode_extension(route: Route) -> bytes:
    sampling = route.sampling
    grammar = sampling.grammar.encode()
    if any(len(digest) != DIGEST_BYTES for digest in route.block_digests):
        raise FrameError(f"a block digest has not {DIGEST_BYTES} bytes")
    return b"".join(
        (
            _EXTENSION.pack(
                sampling.min_p,
                sampling.presence_penalty,
                sampling.frequency_penalty,
                sampling.repetition_penalty,
                -1 if sampling.logprobs is None else sampling.logprobs,
                len(sampling.logit_bias),
                len(grammar),
                len(sampling.prompt_ids),
                len(sampling.emitted_ids),
                len(route.block_digests),
            ),
            *(_BIAS.pack(token_id, bias) for token_id, bias in sampling.logit_bias),
            grammar,
            struct.pack(f"<{len(sampling.prompt_ids)}I", *sampling.prompt_ids),
            struct.pack(f"<{len(sampling.emitted_ids)}I", *sampling.emitted_ids),
            *route.block_digests,
        )
    )


# What the extension of a route is that needs none.
_NO_EXTENSION = _EXTENSION.pack(0.0, 0.0, 0.0, 1.0, -1, 0, 0, 0, 0, 0)


def _decode_extension(view: memoryview, offset: int, route: Route) -> tuple[Route, int]:
    min_p, presence, frequency, repetition, logprobs, biases, grammar, prompt, emitted, digests = (
        _EXTENSION.unpack_from(view, offset)
    )
    offset += _EXTENSION.size
    rest = biases * _BIAS.size + grammar + 4 * (prompt + emitted) + digests * DIGEST_BYTES
    if rest > len(view) - offset:
        raise FrameError(f"an extension of {rest} bytes is cut short")
    logit_bias = tuple(_BIAS.iter_unpack(view[offset : offset + biases * _BIAS.size]))
    offset += biases * _BIAS.size
    grammar_text = bytes(view[offset : offset + grammar]).decode()
    offset += grammar
    prompt_ids = struct.unpack_from(f"<{prompt}I", view, offset)
    offset += 4 * prompt
    emitted_ids = struct.unpack_from(f"<{emitted}I", view, offset)
    offset += 4 * emitted
    digest_bytes = bytes(view[offset : offset + digests * DIGEST_BYTES])
    offset += digests * DIGEST_BYTES
    sampling = replace(
        route.sampling,
        min_p=min_p,
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=logit_bias,
        logprobs=None if logprobs < 0 else logprobs,
        grammar=grammar_text,
        prompt_ids=prompt_ids,
        emitted_ids=emitted_ids,
    )
    block_digests = tuple(
        digest_bytes[start : start + DIGEST_BYTES]
        for start in range(0, len(digest_bytes), DIGEST_BYTES)
    )
    return replace(route, sampling=sampling, block_digests=block_digests), offset
