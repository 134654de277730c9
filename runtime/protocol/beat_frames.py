"""Heartbeats: a frame that asks a process whether it is there, and what its transport answers.

    beat  whoever watches -> watched    sequence
    echo  watched -> whoever watches    the same sequence; how long its process's turn lasts so far,
                                        and how long turns like it lasted lately

One ZeroMQ frame each, on a connection of their own. The echo is given by the transport's thread,
whatever the process's own thread does: that it hangs is told by its turn.
"""

import struct
from dataclasses import dataclass

from runtime.protocol.data import FrameError

BEAT_MAGIC = b"HLB1"
_BEAT = struct.Struct("<4sQ")  # magic, sequence
_ECHO = struct.Struct("<4sQQQ")  # magic, sequence, turn, longest turn (us)
_MICRO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Are you there? Numbered by whoever asks."""

    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """I am. `turn_s`: since when the process has taken no messages, 0 while it waits for some;
    `longest_turn_s`: the longest of those before that had as much to do."""

    sequence: int
    turn_s: float
    longest_turn_s: float


def encode_beat(beat: Beat) -> bytes:
    """One frame."""
    return _BEAT.pack(BEAT_MAGIC, beat.sequence)


def encode_echo(echo: Echo) -> bytes:
    """One frame."""
    return _ECHO.pack(
        BEAT_MAGIC, echo.sequence, round(echo.turn_s * _MICRO), round(echo.longest_turn_s * _MICRO)
    )


def is_beat_frame(frame: bytes | memoryview) -> bool:
    """Whether it begins as the frames of this file do."""
    return bytes(memoryview(frame)[:4]) == BEAT_MAGIC


def decode_beat(frame: bytes | memoryview) -> Beat:
    """Raises FrameError for anything that `encode_beat` does not make."""
    return Beat(sequence=_unpack(_BEAT, frame)[0])


def decode_echo(frame: bytes | memoryview) -> Echo:
    """Raises FrameError for anything that `encode_echo` does not make."""
    sequence, turn_us, longest_us = _unpack(_ECHO, frame)
    return Echo(sequence=sequence, turn_s=turn_us / _MICRO, longest_turn_s=longest_us / _MICRO)


def _unpack(form: struct.Struct, frame: bytes | memoryview) -> tuple[int, ...]:
    try:
        magic, *numbers = form.unpack(frame)
    except struct.error as error:
        size = memoryview(frame).nbytes
        raise FrameError(f"malformed heartbeat of {size} bytes: {error}") from error
    if magic != BEAT_MAGIC:
        raise FrameError(f"heartbeat begins with {magic!r}, not {BEAT_MAGIC!r}")
    return tuple(numbers)
