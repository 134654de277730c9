"""Who goes first when all pipelines are full: fair shares, priorities, and room for everyone."""

from pathlib import Path

import pytest
from coordinator_doubles import make_serving, write_checkpoint
from hypothesis import given
from hypothesis import strategies as st

from planner.routers.base import RequestSize
from runtime.api.waiting_line import WaitingLine
from runtime.coordinator.live_request import LiveRequest, Origin
from runtime.coordinator.serving import Serving
from runtime.coordinator.text_stream import AnswerText
from runtime.protocol.data import Sampling

SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=8)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    folder: Path = tmp_path_factory.mktemp("line")
    return make_serving(write_checkpoint(folder / "checkpoint"))


class Line:
    """A waiting line and a way to fill it."""

    def __init__(self, serving: Serving) -> None:
        self.line: WaitingLine[LiveRequest] = WaitingLine()
        self._serving = serving
        self._ids = iter(range(1, 10_000))

    def request(self, owner: str, *, tokens: int = 10, priority: int = 0) -> LiveRequest:
        return LiveRequest(
            next(self._ids),
            serving=self._serving,
            prompt_ids=(1,),
            sampling=SAMPLING,
            size=RequestSize(prompt_tokens=tokens, predicted_output_tokens=0),
            text=AnswerText(lambda ids: "", ()),
            arrived_at=0.0,
            origin=Origin(owner=owner, priority=priority),
        )

    def come(self, owner: str, *, tokens: int = 10, priority: int = 0) -> LiveRequest:
        request = self.request(owner, tokens=tokens, priority=priority)
        self.line.add(request, self.line.turn_of(request))
        return request

    def go(self, count: int = 1) -> str:
        """The owners of the next to go, in order."""
        gone = []
        for _ in range(count):
            request = next(iter(self.line))
            self.line.let_in(request)
            gone.append(request.owner)
        return "".join(gone)


@pytest.fixture
def line(serving: Serving) -> Line:
    return Line(serving)


def test_with_one_key_it_is_first_come_first_served(line: Line) -> None:
    requests = [line.come("a", tokens=tokens) for tokens in (50, 1, 20)]
    assert list(line.line) == requests


def test_a_key_that_asks_little_does_not_wait_for_one_that_asks_a_lot(line: Line) -> None:
    for _ in range(10):
        line.come("a")
    assert line.go(3) == "aaa"
    line.come("b")
    line.come("b")
    assert line.go(5) == "babaa"


def test_shares_are_of_tokens_not_of_requests(line: Line) -> None:
    for _ in range(4):
        line.come("a", tokens=40)
    for _ in range(16):
        line.come("b", tokens=10)
    first = line.go(10)
    assert first.count("a") == 2
    assert first.count("b") == 8


def test_what_went_without_waiting_counts_as_well(line: Line) -> None:
    for _ in range(5):
        request = line.request("a")
        line.line.pass_by(request, line.line.turn_of(request))
    line.come("a")
    line.come("b")
    assert line.go(2) == "ba"


def test_a_key_that_was_away_is_owed_nothing_for_it(line: Line) -> None:
    for _ in range(20):
        line.come("a")
    line.go(10)
    for _ in range(10):
        line.come("b")
    assert line.go(8) in ("abababab", "babababa")


def test_a_higher_number_steps_back_behind_all_lower_ones(line: Line) -> None:
    line.come("batch", priority=5)
    line.come("a")
    line.come("b")
    line.come("a")
    assert [request.owner for request in line.line] == ["a", "b", "a", "batch"]


def test_who_begins_anew_goes_before_all_and_keeps_the_order(line: Line) -> None:
    line.come("a")
    first, second = line.request("b"), line.request("b", priority=9)
    for request in (second, first):
        line.line.add_front(request)
    assert list(line.line)[:2] == [first, second]
    line.line.remove(second)
    assert line.go(2) == "ba"
    assert len(line.line) == 0


def test_only_those_before_a_turn_are_before_it(line: Line) -> None:
    for _ in range(3):
        line.come("a")
    line.go()
    newcomer = line.request("b")
    before = list(line.line.before(line.line.turn_of(newcomer)))
    assert [request.owner for request in before] in ([], ["a"])


def test_a_key_that_took_all_places_shuts_nobody_out_and_what_waits_is_bounded(line: Line) -> None:
    most = 20
    for owner in ("a", "b", "c", *(f"{number}" for number in range(100))):
        while line.line.has_place(owner, most=most):
            line.come(owner)
    assert [line.line.waiting_of(owner) for owner in "abc"] == [20, 10, 6]
    assert len(line.line) <= 2 * most


def test_whoever_ended_leaves_its_place(line: Line) -> None:
    request = line.come("a")
    line.line.remove(request)
    assert (len(line.line), line.line.waiting_of("a")) == (0, 0)
    with pytest.raises(ValueError, match="does not wait"):
        line.line.remove(request)


def test_what_was_given_up_takes_nothing_of_its_keys_share(line: Line) -> None:
    impatient = [line.come("a") for _ in range(5)]
    line.come("a")
    for _ in range(4):
        line.come("b")
    for request in impatient:
        line.line.remove(request)
    assert line.go(3) == "abb"
    line.come("a")
    assert line.go(3) == "abb"


def test_who_comes_behind_what_is_given_up_moves_up_to_where_the_line_was_then(line: Line) -> None:
    impatient = line.come("a", priority=5)
    for _ in range(3):
        line.come("b")
    line.go(3)
    line.come("c")
    line.come("a")
    line.line.remove(impatient)
    assert line.go(2) == "ca"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=60))
def test_the_order_is_as_if_what_was_given_up_had_never_come(
    serving: Serving, asked: list[tuple[str, bool]]
) -> None:
    line, without = Line(serving), Line(serving)
    impatient = []
    for number, (owner, stays) in enumerate(asked):
        came = line.come(owner, tokens=number + 1)
        if stays:
            without.come(owner, tokens=number + 1)
        else:
            impatient.append(came)
    for request in impatient:
        line.line.remove(request)
    assert [r.size for r in line.line] == [r.size for r in without.line]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), min_size=1, max_size=60))
def test_no_busy_key_gets_more_than_its_share_and_one_request(
    serving: Serving, asked: list[tuple[str, int]]
) -> None:
    line = Line(serving)
    waiting: dict[str, int] = {}
    for owner, tokens in asked:
        line.come(owner, tokens=tokens)
        waiting[owner] = waiting.get(owner, 0) + 1
    served = dict.fromkeys(waiting, 0)
    while all(waiting.values()):  # as long as all are busy
        request = next(iter(line.line))
        line.line.let_in(request)
        served[request.owner] += request.size.total_tokens
        waiting[request.owner] -= 1
        assert max(served.values()) - min(served.values()) <= 2 * 50
