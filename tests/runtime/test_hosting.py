"""Generations come and go on an emulated node: what it may hold, and what is given up."""

import threading
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import replace
from queue import SimpleQueue

from emulated_cluster import LAYERS, MODEL, emulation_of
from fake_web import wait_until

from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.generation import Generation, Progress, runs_of
from runtime.engine.hosting import Hosting
from runtime.engine.pages import BlockTable
from runtime.protocol.control import PeerAddress, StageStats
from runtime.protocol.emulation import Emulation
from runtime.protocol.stage_pipe import (
    CannotAddEvent,
    LoadingEvent,
    ReadyEvent,
    RetiredEvent,
    StageEvent,
)

PAGES_BY_LAYERS = (800, 700, 600, 500, 400, 300, 200, 100)
PAGE_TOKENS = 4


def emulation(*, max_layers: int = LAYERS) -> Emulation:
    """The more layers, the less room."""
    found = emulation_of(page_tokens=PAGE_TOKENS)
    profile = replace(
        found.profile,
        max_layers=max_layers,
        tokens_per_s=(100.0,) * max_layers,
        kv_capacity_token_layers=tuple(
            float(pages * PAGE_TOKENS) for pages in PAGES_BY_LAYERS[:max_layers]
        ),
    )
    return found.model_copy(update={"profile": profile})


class SlowLoader(EmulatedRunner):
    """Reads layers no sooner than it is allowed to."""

    def __init__(self, emulation: Emulation) -> None:
        super().__init__(emulation, first=0, end=4, page_tokens=PAGE_TOKENS)
        self.goes_on = threading.Event()

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        self.goes_on.wait()
        return super().load(runs, progress)


class Rig:
    """A hosting over an emulated node, and what it told."""

    def __init__(self, *, max_layers: int = LAYERS) -> None:
        self.runner = SlowLoader(emulation(max_layers=max_layers))
        self.events: list[StageEvent] = []
        self.met: list[tuple[PeerAddress, ...]] = []
        self.orders: SimpleQueue[Generation] = SimpleQueue()
        self.hosting = Hosting(
            generation(1, range(4)),
            host=self,
            kv_manager=self.runner.kv_manager,
            holdings=self.runner,
            orders=self.orders,
            tell=self.events.append,
            meet=self.met.append,
        )

    def stats(self) -> StageStats:
        kv_manager = self.runner.kv_manager
        return StageStats(
            kv_pages_total=kv_manager.total,
            kv_pages_used=kv_manager.used,
            sequences=0,
            steps_total=0,
            prompt_tokens_total=0,
            decode_tokens_total=0,
            busy_s_total=0.0,
            uptime_s=0.0,
            weights_bytes=self.runner.weights_bytes,
            kv_bytes=self.runner.kv_bytes,
            emulated=True,
        )

    def tables(self) -> Iterable[BlockTable]:
        return ()

    def make_room(self, pages: int) -> None:
        assert self.runner.kv_manager.used <= pages

    def until_told(self, *kinds: type[StageEvent]) -> None:
        """All those and no others, but for progress."""
        self.runner.goes_on.set()

        def are_told() -> bool:
            self.hosting.advance()
            return self.told == list(kinds)

        wait_until(are_told, what=f"{kinds} are told, not {self.events}")

    @property
    def names_met(self) -> list[list[str]]:
        return [[peer.name for peer in peers] for peers in self.met]

    @property
    def told(self) -> list[type[StageEvent]]:
        return [type(event) for event in self.events if not isinstance(event, LoadingEvent)]


def generation(number: int, layers: range) -> Generation:
    peer = PeerAddress(
        name=f"node-{number}", endpoint=f"tcp://127.0.0.1:{number}", public_key="k" * 40
    )
    return Generation(number=number, layers=layers, peers=(peer,))


def test_pages_make_room_for_layers_before_they_come_and_get_it_back_when_others_go() -> None:
    rig = Rig()
    assert rig.runner.kv_manager.total == 500
    rig.orders.put(generation(2, range(2, 6)))
    rig.hosting.advance()
    assert (rig.runner.kv_manager.total, len(rig.runner.held)) == (300, 4)
    assert rig.hosting.ranges == {1: range(4)}
    rig.until_told(ReadyEvent)
    assert rig.hosting.ranges == {1: range(4), 2: range(2, 6)}
    assert rig.runner.held == set(range(6))
    assert rig.runner.weights_bytes == 6 * MODEL.bytes_per_layer
    assert rig.hosting.retire(1)
    assert rig.runner.held == set(range(2, 6))
    assert rig.runner.kv_manager.total == 500
    assert not rig.hosting.retire(1)
    assert rig.told == [ReadyEvent, RetiredEvent]
    assert rig.names_met == [["node-1", "node-2"], ["node-2"]]


def test_one_that_still_loads_is_given_up_for_the_next() -> None:
    rig = Rig()
    rig.orders.put(generation(2, range(2, 8)))
    rig.hosting.advance()
    assert rig.runner.kv_manager.total == 100
    rig.orders.put(generation(3, range(2, 5)))
    rig.hosting.advance()
    rig.until_told(ReadyEvent)
    assert rig.hosting.ranges == {1: range(4), 3: range(2, 5)}
    assert rig.runner.held == set(range(5))
    assert rig.runner.kv_manager.total == 400
    (ready,) = (event for event in rig.events if isinstance(event, ReadyEvent))
    assert ready.generation == 3


def test_layers_that_one_that_loads_needs_outlive_the_generation_that_brought_them() -> None:
    rig = Rig()
    rig.orders.put(generation(2, range(2, 6)))
    rig.hosting.advance()
    rig.hosting.retire(1)
    rig.until_told(RetiredEvent, ReadyEvent)
    assert rig.names_met == [["node-2"], ["node-2"]]  # the coordinator is among them, too
    assert rig.hosting.ranges == {2: range(2, 6)}
    assert rig.runner.held == set(range(2, 6))


def test_a_node_that_holds_no_more_layers_says_that_a_process_of_its_own_might() -> None:
    rig = Rig(max_layers=5)
    rig.orders.put(generation(2, range(2, 6)))
    rig.until_told(CannotAddEvent)
    (refusal,) = rig.events
    assert isinstance(refusal, CannotAddEvent)
    assert refusal.restart_helps
    assert "6 layers are assigned" in refusal.message
    assert rig.runner.kv_manager.total == 500


def test_the_layers_of_the_last_generation_stay_for_the_next() -> None:
    rig = Rig()
    rig.hosting.retire(1)
    assert rig.runner.held == set(range(4))
    rig.orders.put(generation(2, range(1, 3)))
    rig.until_told(RetiredEvent, ReadyEvent)
    assert rig.runner.held == {1, 2}
    assert rig.runner.kv_manager.total == 700


def test_layers_are_loaded_in_as_few_runs_as_can_be() -> None:
    assert runs_of([]) == []
    assert runs_of([5, 1, 2, 7, 3]) == [range(1, 4), range(5, 6), range(7, 8)]
