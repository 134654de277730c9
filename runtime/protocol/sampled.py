"""The payload of SAMPLED: token ids, and behind them the logprobs of the tokens that have them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.protocol.data import Entry, Flag, FrameError, Message

_ALTERNATIVE = struct.Struct("<If")  # token id, logprob
_LOGPROBS = struct.Struct("<Bf")  # alternatives, logprob of the token itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Logprobs:
    """Natural logarithms of probabilities: of the token, and of the most likely (id, logprob)."""

    token: float
    most_likely: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledToken:
    """A token and where it belongs."""

    entry: Entry
    token_id: int
    logprobs: Logprobs | None


def pack_sampled(token_ids: Sequence[int], logprobs: Sequence[Logprobs | None]) -> bytes:
    """The payload for tokens in the order of their entries; those with logprobs have the flag."""
    parts = [struct.pack(f"<{len(token_ids)}i", *token_ids)]
    for each in logprobs:
        if each is not None:
            parts.append(_LOGPROBS.pack(len(each.most_likely), each.token))
            parts += [_ALTERNATIVE.pack(*alternative) for alternative in each.most_likely]
    return b"".join(parts)


def unpack_sampled(message: Message) -> list[SampledToken]:
    """Raises FrameError when the payload does not hold what the entries announce."""
    payload = memoryview(message.payload).cast("B")
    count = len(message.entries)
    tokens = []
    try:
        token_ids = struct.unpack_from(f"<{count}i", payload)
        offset = 4 * count
        for entry, token_id in zip(message.entries, token_ids, strict=True):
            logprobs = None
            if Flag.LOGPROBS in entry.flags:
                alternatives, own = _LOGPROBS.unpack_from(payload, offset)
                offset += _LOGPROBS.size
                end = offset + alternatives * _ALTERNATIVE.size
                most_likely = tuple(_ALTERNATIVE.iter_unpack(payload[offset:end]))
                offset = end
                logprobs = Logprobs(token=own, most_likely=most_likely)
            tokens.append(SampledToken(entry=entry, token_id=token_id, logprobs=logprobs))
    except struct.error as error:
        raise FrameError(
            f"SAMPLED carries {len(payload)} bytes for {count} tokens: {error}"
        ) from error
    if offset != len(payload):
        raise FrameError(
            f"SAMPLED carries {len(payload)} bytes for {count} tokens; they need {offset}"
        )
    return tokens
