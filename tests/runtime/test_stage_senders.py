"""A stage acts on a message only when it comes from the peer whose business it is."""

from dataclasses import replace

import numpy as np
import pytest

from planner.domain.cluster import COORDINATOR
from runtime.engine.backend import ModelShape
from runtime.engine.intake import Intake
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import RequestKey
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Reason, Route, Sampling

GENERATION = 2
HIDDEN = 4
ROUTE = Route(
    hops=(
        Hop(node="a", first=0, end=2),
        Hop(node="b", first=2, end=4),
        Hop(node="c", first=4, end=6),
    ),
    sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=9),
    prompt_tokens=5,
)
KEY = RequestKey(request=1, epoch=0)
OTHERS = ("a", "b", "c", COORDINATOR, "stranger")


def stage(name: str) -> Intake:
    hop = next(hop for hop in ROUTE.hops if hop.node == name)
    shape = ModelShape(
        first=hop.first,
        end=hop.end,
        num_layers=6,
        hidden_size=HIDDEN,
        vocab_size=300,
        dtype=DType.FLOAT32,
    )
    return Intake(
        name,
        shape,
        max_context_tokens=64,
        ranges={GENERATION: range(hop.first, hop.end)},
        running_requests=RunningRequests(),
        admit=lambda *_sequence, **_rows: Reason.NONE,
        forget=lambda sequence: None,
        is_lost=lambda coordinator: False,
    )


def message(kind: Kind, *, hop: int, position: int, n_tokens: int, route: Route | None) -> Message:
    entry = Entry(
        request=1,
        epoch=0,
        position=position,
        n_tokens=n_tokens,
        hop=hop,
        flags=Flag.PROMPT_END,
        route=route,
    )
    is_rows = kind is Kind.ROWS
    rows = np.ones((n_tokens, HIDDEN if is_rows else 1), dtype="<f4" if is_rows else "<i4")
    return Message(
        kind=kind,
        generation=GENERATION,
        entries=(entry,),
        dtype=DType.FLOAT32 if is_rows else DType.INT32,
        payload=rows.tobytes(),
    )


PROMPT = message(Kind.PROMPT, hop=0, position=0, n_tokens=5, route=ROUTE)
SAMPLED = message(Kind.SAMPLED, hop=0, position=5, n_tokens=1, route=None)
FIRST_ROWS = message(Kind.ROWS, hop=1, position=0, n_tokens=5, route=ROUTE)
NEXT_ROWS = message(Kind.ROWS, hop=1, position=5, n_tokens=1, route=None)
RELEASE = Message(
    kind=Kind.RELEASE,
    generation=GENERATION,
    entries=(Entry(request=1, epoch=0, position=0, n_tokens=0, hop=0),),
)


def received(intake: Intake) -> int:
    sequence = intake.running_requests.by_key.get(KEY)
    return -1 if sequence is None else sequence.received


@pytest.mark.parametrize(
    ("name", "before", "tested", "rightful", "tokens"),
    [
        ("a", [], PROMPT, COORDINATOR, 5),
        ("a", [(COORDINATOR, PROMPT)], SAMPLED, "c", 6),
        ("b", [], FIRST_ROWS, "a", 5),
        ("b", [("a", FIRST_ROWS)], NEXT_ROWS, "a", 6),
        ("b", [("a", FIRST_ROWS)], RELEASE, COORDINATOR, -1),
    ],
    ids=["prompt", "sampled token", "first rows", "later rows", "release"],
)
def test_a_message_of_anyone_else_changes_nothing_and_the_rightful_one_is_taken(
    name: str, before: list[tuple[str, Message]], tested: Message, rightful: str, tokens: int
) -> None:
    intake = stage(name)
    for sender, earlier in before:
        assert intake.accept(earlier, sender=sender, now_s=0.0) == []
    untouched = received(intake)
    for sender in OTHERS:
        if sender != rightful:
            assert intake.accept(tested, sender=sender, now_s=0.0) == [], sender
            assert received(intake) == untouched, sender
    assert intake.accept(tested, sender=rightful, now_s=0.0) == []
    assert received(intake) == tokens


def test_a_stranger_cannot_end_a_request_with_a_malformed_entry() -> None:
    intake = stage("a")
    intake.accept(PROMPT, sender=COORDINATOR, now_s=0.0)
    (entry,) = SAMPLED.entries
    ahead = replace(SAMPLED, entries=(entry._replace(position=50),))
    assert intake.accept(ahead, sender="b", now_s=0.0) == []
    assert KEY in intake.running_requests.by_key


def test_a_message_of_a_stranger_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    intake = stage("a")
    for _ in range(3):
        intake.accept(PROMPT, sender="stranger", now_s=0.0)
    assert len(caplog.records) == 1
    assert "stranger" in caplog.text
    assert "PROMPT" in caplog.text
