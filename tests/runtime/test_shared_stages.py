"""Two coordinators use the same stages: each is told of its own, both go on, either may go."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordinator_doubles import write_checkpoint
from shared_stages import FIRST, GENERATION, SECOND, Front, SharedStages
from test_coordinator_dispatcher import drain

from runtime.coordinator.live_request import LiveRequest
from runtime.protocol.data import Entry, Kind, Message
from runtime.transport.heartbeats import Loss

NOTHING = {"a": 0, "b": 0, "c": 0}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("shared") / "checkpoint")


@pytest.fixture
def shared(checkpoint: Path) -> SharedStages:
    return SharedStages(checkpoint)


@pytest.fixture(scope="module")
def undisturbed(checkpoint: Path) -> Callable[[int, int], list[int]]:
    """What a lone coordinator answers to that seed, with so many tokens."""
    alone = SharedStages(checkpoint, coordinators=[FIRST])

    def answer(seed: int, tokens: int) -> list[int]:
        request = alone.fronts[FIRST].ask(seed=seed, output_tokens=tokens)
        alone.until(lambda: request.ended)
        return tokens_of(request)

    return answer


def tokens_of(request: LiveRequest) -> list[int]:
    return [delta.token_id for delta in drain(request)]


def all_ended(requests: list[LiveRequest]) -> Callable[[], bool]:
    return lambda: all(request.ended for request in requests)


def test_each_coordinator_hears_of_its_own_requests_alone(
    shared: SharedStages, undisturbed: Callable[[int, int], list[int]]
) -> None:
    fronts = shared.fronts.values()
    requests = [[front.ask(seed=seed) for seed in range(3)] for front in fronts]
    shared.until(all_ended([*requests[0], *requests[1]]))
    for front, own in zip(fronts, requests, strict=True):
        assert [tokens_of(request) for request in own] == [undisturbed(n, 20) for n in range(3)]
        ids = {request.id for request in own}
        said = [entry.request for message in front.heard for entry in message.entries]
        assert set(said) == ids
    shared.turns(0.1)
    assert shared.used() == NOTHING


def test_one_coordinator_is_told_what_the_other_holds_of_the_pages(shared: SharedStages) -> None:
    first, second = shared.fronts.values()
    request = first.ask(seed=1, prompt_tokens=100, output_tokens=100)
    shared.until(lambda: second.serving.kv.elsewhere_token_layers("c") > 100 * 4)
    assert first.serving.kv.elsewhere_token_layers("c") == 0
    shared.until(all_ended([request]))
    shared.until(lambda: second.serving.kv.elsewhere_token_layers("c") == 0)


def test_nobody_ends_a_request_of_another_coordinator(shared: SharedStages) -> None:
    first, second = shared.fronts.values()
    request = first.ask(seed=1)
    shared.turns(0.1)
    entry = Entry(request=request.id, epoch=0, position=0, n_tokens=0, hop=0)
    release = Message(kind=Kind.RELEASE, generation=GENERATION, entries=(entry,))
    second.say(Kind.RELEASE, message=release)
    shared.until(all_ended([request]))
    assert request.epoch == 0
    assert len(tokens_of(request)) == 20


def test_a_generation_goes_when_both_have_retired_it_and_not_before(shared: SharedStages) -> None:
    first, second = shared.fronts.values()
    lasting, ended = second.ask(seed=1, output_tokens=60), first.ask(seed=2, output_tokens=60)
    shared.turns(0.3)
    first.say(Kind.RETIRE)
    shared.turns(0.1)
    assert shared.used()["c"] > 0
    first.dispatcher.end(ended)
    shared.until(all_ended([lasting]))
    assert len(tokens_of(lasting)) == 60
    assert lasting.epoch == 0
    before = second.count(Kind.STATUS)
    second.say(Kind.RETIRE)
    shared.turns(3.0)
    assert second.count(Kind.STATUS) == before, "no stage speaks of it any more"


def test_a_stage_that_was_started_anew_is_not_let_go_by_what_its_life_before_was_told(
    checkpoint: Path,
) -> None:
    alone = SharedStages(checkpoint, coordinators=[FIRST])
    front = alone.fronts[FIRST]

    def let_go(incarnation: int) -> Message:
        return Message(kind=Kind.RETIRE, generation=GENERATION, life=incarnation)

    front.say(Kind.RETIRE, message=let_go(99))
    alone.turns(0.1)
    before = front.count(Kind.STATUS)
    alone.turns(3.0)
    assert front.count(Kind.STATUS) > before
    front.say(Kind.RETIRE, message=let_go(1))
    alone.turns(0.1)
    before = front.count(Kind.STATUS)
    alone.turns(3.0)
    assert front.count(Kind.STATUS) == before


def test_one_joins_while_the_other_serves_and_its_streams_go_on(
    checkpoint: Path, undisturbed: Callable[[int, int], list[int]]
) -> None:
    shared = SharedStages(checkpoint, coordinators=[FIRST])
    first = shared.fronts[FIRST]
    under_way = first.ask(seed=1, output_tokens=100)
    shared.turns(0.3)
    shared.join(SECOND, generation=GENERATION + 1)
    second = shared.fronts[SECOND]
    # layers are loaded by threads, if there are none to load as well
    shared.until(lambda: second.serving.is_up, within_s=10_000.0)
    later = second.ask(seed=2)
    first.follow(GENERATION + 1)
    shared.until(all_ended([under_way, later]))
    assert under_way.epoch == later.epoch == 0
    assert tokens_of(under_way) == undisturbed(1, 100)
    assert tokens_of(later) == undisturbed(2, 20)
    shared.until(lambda: first.dispatcher.plans.leaving_generation is None)
    assert second.dispatcher.plans.leaving_generation is None


def test_a_coordinator_that_died_keeps_no_generation_and_no_pages(shared: SharedStages) -> None:
    first, second = shared.fronts.values()
    second.ask(seed=1, output_tokens=200)
    shared.turns(0.3)
    first.say(Kind.RETIRE)
    shared.kill(SECOND)
    shared.turns(0.1)
    assert shared.used() == NOTHING
    before = first.count(Kind.STATUS)
    shared.turns(3.0)
    assert first.count(Kind.STATUS) == before


@pytest.mark.parametrize("kind", [Kind.RELEASE, Kind.PROMPT])
def test_what_a_coordinator_said_right_before_it_died_brings_it_not_back(
    shared: SharedStages, kind: Kind
) -> None:
    first, second = shared.fronts.values()
    request = second.ask(seed=1, output_tokens=200)
    shared.turns(0.3)
    first.say(Kind.RETIRE)
    if kind is Kind.PROMPT:
        second.ask(seed=2, output_tokens=200)
    else:
        second.dispatcher.end(request)
    shared.kill(SECOND)  # nothing of that was read yet
    shared.turns(0.5)
    assert shared.used() == NOTHING
    before = first.count(Kind.STATUS)
    shared.turns(3.0)
    assert first.count(Kind.STATUS) == before, "the generation is served for nobody"


def test_one_that_ended_and_is_back_at_once_begins_anew(
    shared: SharedStages, undisturbed: Callable[[int, int], list[int]]
) -> None:
    _, second = shared.fronts.values()
    request = second.ask(seed=1, output_tokens=60)
    shared.turns(0.3)
    second.is_frozen = True
    shared.see(SECOND, Loss.ENDED)
    shared.see(SECOND, None)
    shared.turns(0.1)
    assert shared.used() == NOTHING
    second.is_frozen = False
    shared.until(all_ended([request]))
    assert tokens_of(request) == undisturbed(1, 60)


def test_requests_of_one_that_died_are_forgotten_and_others_notice_nothing(
    shared: SharedStages, undisturbed: Callable[[int, int], list[int]]
) -> None:
    first, second = shared.fronts.values()
    for seed in range(4):
        second.ask(seed=seed, output_tokens=200)
    request = first.ask(seed=9, output_tokens=60)
    shared.turns(0.3)
    shared.kill(SECOND)
    shared.until(all_ended([request]))
    assert request.epoch == 0
    assert tokens_of(request) == undisturbed(9, 60)
    shared.turns(0.1)
    assert shared.used() == NOTHING


def test_one_that_is_frozen_long_begins_its_requests_anew_when_it_goes_on(
    shared: SharedStages, undisturbed: Callable[[int, int], list[int]]
) -> None:
    _, second = shared.fronts.values()
    short, long = second.ask(seed=1, output_tokens=200), second.ask(seed=2, output_tokens=200)
    shared.turns(0.3)
    second.is_frozen = True
    shared.see(SECOND, Loss.SILENT)
    shared.turns(1.0)
    assert shared.used()["c"] > 0, "one that is silent for a moment loses nothing"
    shared.turns(31.0)
    assert shared.used() == NOTHING
    second.is_frozen = False
    shared.see(SECOND, None)
    shared.until(all_ended([short, long]))
    assert tokens_of(short) == undisturbed(1, 200)
    assert tokens_of(long) == undisturbed(2, 200)


class Clients:
    """Of one coordinator: as many requests as `at_once`, one after the other."""

    def __init__(self, front: Front, *, at_once: int, dice: random.Random, **size: int) -> None:
        self.front = front
        self.size = size
        self.dice = dice
        self.done: list[LiveRequest] = []
        self.failed = 0
        self.running = [self._ask() for _ in range(at_once)]

    def _ask(self) -> LiveRequest:
        size = {name: self.dice.randint(most // 2, most) for name, most in self.size.items()}
        return self.front.ask(seed=self.dice.randrange(10**6), **size)

    def look(self) -> None:
        for index, request in enumerate(self.running):
            if request.ended:
                self.done.append(request)
                self.failed += not request.is_complete
                self.running[index] = self._ask()


def rounds(shared: SharedStages, clients: list[Clients], *, seconds: float) -> Iterator[None]:
    ends_s = shared.now_s + seconds
    while shared.now_s < ends_s:
        shared.turn()
        for each in clients:
            each.look()
        yield


# 100 pages of 4 tokens and 4 layers of each request: 24 requests of 16 tokens, or 5 of 80.
FEW_PAGES = 100


LATE_FOR_LONG = [
    pytest.param(seed, late, 25.0, marks=pytest.mark.chaos) for seed in range(2) for late in (1, 8)
]


@pytest.mark.parametrize(
    ("seed", "late_at_once", "seconds"), [(0, 1, 6.0), (0, 8, 10.0), *LATE_FOR_LONG]
)
def test_both_get_their_share_of_pages_that_both_want_all_of(
    checkpoint: Path, seed: int, late_at_once: int, seconds: float
) -> None:
    shared = SharedStages(checkpoint, pages=FEW_PAGES)
    dice = random.Random(seed)
    first, second = shared.fronts.values()
    sizes = {"prompt_tokens": 30, "output_tokens": 30}
    clients = [Clients(first, at_once=12, dice=dice, **sizes)]
    for _ in rounds(shared, clients, seconds=2.0):
        pass
    late = Clients(second, at_once=late_at_once, dice=dice, **sizes)
    clients.append(late)
    before = len(clients[0].done)
    for _ in rounds(shared, clients, seconds=seconds):
        pass
    done = len(clients[0].done) - before, len(late.done)
    assert [each.failed for each in clients] == [0, 0]
    assert shared.most_used <= FEW_PAGES
    if len(late.running) > 1:
        assert min(done) > 0.25 * sum(done), done
    assert min(done) > 5, done


def test_a_request_that_needs_most_of_the_pages_gets_them_in_the_end(checkpoint: Path) -> None:
    shared = SharedStages(checkpoint, pages=FEW_PAGES)
    dice = random.Random(1)
    first, second = shared.fronts.values()
    small = Clients(first, at_once=8, dice=dice, prompt_tokens=20, output_tokens=20)
    large = Clients(second, at_once=1, dice=dice, prompt_tokens=72, output_tokens=4)
    for _ in rounds(shared, [small, large], seconds=6.0):
        pass
    assert len(large.done) > 2
    assert len(small.done) > 10
    assert small.failed == large.failed == 0


def test_two_that_both_need_most_of_the_pages_take_turns(checkpoint: Path) -> None:
    shared = SharedStages(checkpoint, pages=FEW_PAGES)
    dice = random.Random(1)
    clients = [
        Clients(front, at_once=2, dice=dice, prompt_tokens=72, output_tokens=8)
        for front in shared.fronts.values()
    ]
    for _ in rounds(shared, clients, seconds=8.0):
        pass
    done = [len(each.done) for each in clients]
    assert [each.failed for each in clients] == [0, 0]
    assert min(done) > 0.4 * sum(done), done
