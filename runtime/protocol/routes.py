"""A request's route and how it is sampled, as they travel with its first entry (see `data`)."""

import struct
from dataclasses import dataclass, field, replace

from planner.domain.cluster import COORDINATOR
from runtime.protocol.frame_error import FrameError

_ROUTE_HEAD = struct.Struct("<BffIQIIB")  # hops, temperature, top_p, top_k, seed, ...
_HOP = struct.Struct("<HH")  # first, end; the name follows
_LENGTH = struct.Struct("<B")  # of a name in bytes
# min_p, presence, frequency and repetition penalty, logprobs, min_tokens; how many of: biases,
# bytes of the grammar, prompt ids, emitted ids, block digests
_EXTENSION = struct.Struct("<ffffbIHIIII")
_BIAS = struct.Struct("<If")  # token id, bias

MAX_HOPS = 255
_NEVER = -1e30  # a bias; finite, so that a grammar which allows nothing else still has its way
DIGEST_BYTES = 16


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
    `grammar`: a JSON schema the answer must follow; empty: none. No stop token is among the first
    `min_tokens`, unless the grammar leaves nothing else.
    """

    temperature: float
    top_p: float
    top_k: int
    seed: int
    max_tokens: int
    min_tokens: int = 0
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

    hops: tuple[Hop, ...]
    sampling: Sampling
    prompt_tokens: int
    block_digests: tuple[bytes, ...] = field(default=(), repr=False)
    coordinator: str = COORDINATOR


def encode_route(route: Route) -> bytes:
    """What every request needs of it. Raises FrameError for what the format cannot hold."""
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
        parts += [_HOP.pack(hop.first, hop.end), encode_name(hop.node)]
    return b"".join(parts)


def encode_name(name: str) -> bytes:
    """Raises FrameError for one of more than 255 bytes."""
    encoded = name.encode()
    if len(encoded) > 255:
        raise FrameError(f"the name {name!r} is longer than 255 bytes")
    return bytes([len(encoded)]) + encoded


def decode_name(view: memoryview, offset: int) -> tuple[str, int]:
    """The name at `offset`, and where it ends.

    Raises FrameError, struct.error or UnicodeDecodeError.
    """
    (length,) = _LENGTH.unpack_from(view, offset)
    offset += _LENGTH.size
    name = bytes(view[offset : offset + length])
    if len(name) != length:
        raise FrameError("a name is cut short")
    return name.decode(), offset + length


def decode_route(view: memoryview, offset: int) -> tuple[Route, int]:
    """The route at `offset`, and where it ends. Raises as `decode_name`."""
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
        first, end = _HOP.unpack_from(view, offset)
        name, offset = decode_name(view, offset + _HOP.size)
        hops.append(Hop(node=name, first=first, end=end))
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


def encode_extension(route: Route) -> bytes:
    """What few requests need; empty where `route` needs none of it. Raises FrameError."""
    sampling = route.sampling
    grammar = sampling.grammar.encode()
    if any(len(digest) != DIGEST_BYTES for digest in route.block_digests):
        raise FrameError(f"a block digest has not {DIGEST_BYTES} bytes")
    extension = b"".join(
        (
            _EXTENSION.pack(
                sampling.min_p,
                sampling.presence_penalty,
                sampling.frequency_penalty,
                sampling.repetition_penalty,
                -1 if sampling.logprobs is None else sampling.logprobs,
                sampling.min_tokens,
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
    return b"" if extension == _NO_EXTENSION else extension


# The extension of a route that needs none.
_NO_EXTENSION = _EXTENSION.pack(0.0, 0.0, 0.0, 1.0, -1, 0, 0, 0, 0, 0, 0)


def decode_extension(view: memoryview, offset: int, route: Route) -> tuple[Route, int]:
    """`route` with the extension at `offset`, and where that ends. Raises as `decode_name`."""
    min_p, presence, frequency, repetition, logprobs, min_tokens, *counts = _EXTENSION.unpack_from(
        view, offset
    )
    biases, grammar, prompt, emitted, digests = counts
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
        min_tokens=min_tokens,
        grammar=grammar_text,
        prompt_ids=prompt_ids,
        emitted_ids=emitted_ids,
    )
    block_digests = tuple(
        digest_bytes[start : start + DIGEST_BYTES]
        for start in range(0, len(digest_bytes), DIGEST_BYTES)
    )
    return replace(route, sampling=sampling, block_digests=block_digests), offset
