"""Frames of somebody who means harm, to everything that reads frames: no object of theirs is made.

Who has no key is not heard at all (`test_transport.py`); here somebody has one.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from runtime.protocol.data import FrameError, decode
from runtime.protocol.link_frames import decode_link_frame
from runtime.protocol.stage_pipe import AddOrder, parse_event


class Touches:
    """What a pickle can be: a call."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


READERS: dict[str, Callable[[bytes], object]] = {
    "message": lambda frame: decode(frame, b""),
    "payload": lambda frame: decode(b"", frame),
    "link": decode_link_frame,
    "event of a stage": parse_event,
    "order to a stage": AddOrder.model_validate_json,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_no_frame(reader: str, protocol: int, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    frame = pickle.dumps(Touches(proof), protocol=protocol)
    with pytest.raises((FrameError, ValidationError)):
        READERS[reader](frame)
    assert not proof.exists()


@pytest.mark.parametrize("reader", READERS)
def test_a_frame_that_claims_to_be_large_takes_no_memory(reader: str) -> None:
    for frame in (b"\xff" * 64, b"\xff" * 4096, b"[" * 100_000):
        with pytest.raises((FrameError, ValidationError)):
            READERS[reader](frame)
