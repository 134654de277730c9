"""Real frames, damaged: bits, lengths, numbers, and halves of two messages put together."""

import random
import struct
from collections.abc import Callable, Sequence

Frames = tuple[bytes, bytes]  # head, payload

_NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
_FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e38, 1e-45)


def mutated(dice: random.Random, recorded: Sequence[Frames]) -> Frames:
    """One of `recorded` with one to four damages."""
    frames = dice.choice(recorded)
    for _ in range(dice.choice((1, 1, 2, 4))):
        frames = dice.choice(_MUTATIONS)(dice, frames, recorded)
    return frames


def _flip_a_bit(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    return _in_place(dice, frames, lambda part, at: bytes([part[at] ^ (1 << dice.randrange(8))]))


def _set_a_byte(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    return _in_place(dice, frames, lambda part, at: bytes([dice.choice((0, 1, 127, 255))]))


def _set_a_number(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    number = struct.pack("<I", dice.choice(_NUMBERS))
    return _in_place(dice, frames, lambda part, at: number[: len(part) - at])


def _set_a_float(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    number = struct.pack("<f", dice.choice(_FLOATS))
    return _in_place(dice, frames, lambda part, at: number[: len(part) - at])


def _cut_short(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    head, payload = frames
    if dice.random() < 0.5:
        return head[: dice.randrange(len(head) + 1)], payload
    return head, payload[: dice.randrange(len(payload) + 1)]


def _lengthen(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    head, payload = frames
    more = dice.randbytes(dice.randrange(1, 40))
    return (head + more, payload) if dice.random() < 0.5 else (head, payload + more)


def _repeat_a_part(dice: random.Random, frames: Frames, _: Sequence[Frames]) -> Frames:
    head, payload = frames
    at, to = sorted(dice.randrange(len(head) + 1) for _ in range(2))
    return head[:to] + head[at:], payload


def _payload_of_another(dice: random.Random, frames: Frames, recorded: Sequence[Frames]) -> Frames:
    return frames[0], dice.choice(recorded)[1]


_MUTATIONS: tuple[Callable[[random.Random, Frames, Sequence[Frames]], Frames], ...] = (
    _flip_a_bit,
    _flip_a_bit,
    _set_a_byte,
    _set_a_byte,
    _set_a_number,
    _set_a_number,
    _set_a_float,
    _cut_short,
    _lengthen,
    _repeat_a_part,
    _payload_of_another,
)


def _in_place(dice: random.Random, frames: Frames, change: Callable[[bytes, int], bytes]) -> Frames:
    head, payload = frames
    part = payload if payload and dice.random() < 0.2 else head
    if not part:
        return frames
    at = dice.randrange(len(part))
    new = change(part, at)
    damaged = part[:at] + new + part[at + len(new) :]
    return (head, damaged) if part is payload else (damaged, payload)
