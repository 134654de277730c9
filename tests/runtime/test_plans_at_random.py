"""Plans follow one another at random moments while stages die, lose and refuse requests.

Whatever comes, every answer is the one it would have been undisturbed, and at the end one plan
serves, nothing is held, and every stage that speaks of another generation is told to forget it.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from coordinator_doubles import RANGES, write_checkpoint
from test_plans_side_by_side import NEW_RANGES, OLD, Change, assert_whole

from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.refusals import NotServing, QueueFull
from runtime.protocol.data import Reason
from runtime.transport.heartbeats import Loss, PeerEvent

SEEDS = range(75)
STEPS = 120
NODES = sorted({*RANGES, *NEW_RANGES})


class Weather(Change):
    """Stages that serve whatever generations they were given, until they are told to forget one."""

    def __init__(self, checkpoint: Path, *, seed: int) -> None:
        super().__init__(checkpoint)
        self.dice = random.Random(seed)
        self.newest = OLD
        self.ranges = {OLD: RANGES}
        self.hosted: dict[str, set[int]] = {node: set() for node in NODES}
        self.dead: set[str] = set()
        self.requests: list[LiveRequest] = []
        for node in RANGES:
            self.hosted[node].add(OLD)

    def deploy(self) -> None:
        self.newest += 1
        ranges = self.dice.choice((RANGES, NEW_RANGES))
        self.ranges[self.newest] = ranges
        if ranges is NEW_RANGES:
            self.follow(self.newest)
        else:
            self.go_back(self.newest)

    def bring_up(self, node: str) -> None:
        """The newest generation is loaded there."""
        if node in self.ranges[self.newest] and node not in self.dead:
            self.hosted[node].add(self.newest)
            self.speak(node)

    def speak(self, node: str) -> None:
        for generation in sorted(self.hosted[node]):
            if (node, generation) in self.stages.retired:
                self.hosted[node].discard(generation)
            else:
                ranges = self.ranges[generation]
                self.stages.report(node, generation=generation, ranges=ranges)

    def second(self) -> None:
        """Passes: who lives says so, and the coordinator's clock ticks."""
        self.clock.now += 1
        for node in NODES:
            if node not in self.dead:
                self.speak(node)
        self.dispatcher.expire()

    def ask(self) -> None:
        try:
            self.requests.append(self.submit())
        except (NotServing, QueueFull):
            return

    def kill(self, node: str) -> None:
        self.dead.add(node)
        self.stages.freeze(node)
        self.dispatcher.see(PeerEvent(peer=node, loss=Loss.ENDED, silent_s=0.1))

    def revive(self, node: str) -> None:
        """As a new process, of the newest generation alone."""
        if node in self.dead:
            self.dead.discard(node)
            self.stages.begin_again(node)
            self.hosted[node] = {self.newest} & {
                own for own, ranges in self.ranges.items() if node in ranges
            }
            self.dispatcher.see(PeerEvent(peer=node, loss=None, silent_s=0.0))
            self.speak(node)

    def refuse(self, reason: Reason) -> None:
        running = [
            each
            for each in self.requests
            if each.pipeline and not each.ended and (each.id, each.epoch) in self.stages.routes
        ]
        if running:
            request = self.dice.choice(running)
            self.stages.refuse((request.id, request.epoch), reason)

    def happen(self) -> None:
        node = self.dice.choice(NODES)
        things: list[tuple[float, Callable[[], object]]] = [
            (1.0, self.deploy),
            (8.0, lambda: self.bring_up(node)),
            (6.0, self.second),
            (8.0, self.ask),
            (12.0, self.stages.step),
            (1.0, lambda: self.kill(node)),
            (2.0, lambda: self.revive(node)),
            (1.0, lambda: self.refuse(Reason.PREEMPTED)),
            (0.5, lambda: self.refuse(Reason.UNKNOWN_REQUEST)),
        ]
        weights, choices = zip(*things, strict=True)
        self.dice.choices(choices, weights)[0]()

    def calm_down(self) -> None:
        """All stages live and have the newest generation; requests end."""
        for node in NODES:
            self.revive(node)
            self.bring_up(node)
        for _ in range(10):
            self.second()
            while self.stages.step():
                pass


@pytest.mark.parametrize("first", range(0, len(SEEDS), 25))
def test_whatever_happens_between_plans_no_answer_is_lost_or_changed(
    tmp_path: Path, first: int
) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    asked = 0
    for seed in SEEDS[first : first + 25]:
        weather = Weather(checkpoint, seed=seed)
        for _ in range(STEPS):
            weather.happen()
        weather.calm_down()
        plans = weather.dispatcher.plans
        serving = weather.dispatcher.plans.ready()
        assert serving.generation == weather.newest, seed
        assert (plans.coming, plans.leaving) == (None, None), seed
        for request in weather.requests:
            assert_whole(request)
        asked += len(weather.requests)
        assert weather.dispatcher.requests_running == 0, seed
        assert weather.dispatcher.requests_waiting == 0, seed
        assert not weather.stages.nodes_with_pages, seed
        assert all(serving.kv.used_token_layers(node) == 0 for node in serving.nodes), seed
        only = {node: {weather.newest} & weather.hosted[node] for node in NODES}
        assert weather.hosted == only, seed
    assert asked > 100
