"""Web, worker, beat and servers are killed while a person works: all accepted happens once.

Real processes, seeded. `-m chaos` runs a hundred kills with each pair of services, and prints what
was done.
"""

import json
import random
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import ControlPlane
from tests.e2e.event_reader import EventReader
from tests.e2e.joined_doubles import JoinedDoubles
from tests.e2e.servers import PostgresServer, RedisServer
from tests.helixweb.conftest import TINY_PROBLEM
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

NODES = [node["name"] for node in TINY_PROBLEM["nodes"]]
UNFINISHED = {"queued", "running"}


class Day:
    """A site with a cluster to work on, whose processes have joined, and somebody who looks on."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        self.plane = plane
        self.person = plane.person
        self.cluster = self.person.import_cluster(TINY_PROBLEM, name="work")
        self.other = self.person.import_cluster(TINY_PROBLEM, name="other")
        self.model = self.person.give_checkpoint("tiny-llama", "/models/tiny-llama")
        tokens = {name: self.person.token(self.cluster, "node") for name in NODES}
        tokens["coordinator"] = self.person.token(self.cluster, "coordinator")
        self.doubles = stack.enter_context(JoinedDoubles(plane.url, tokens=tokens))
        self.topics = [f"cluster:{self.cluster}", f"cluster:{self.other}"]
        self.plans: list[int] = []

    def round(self) -> None:
        """Edits, a plan, and it or an earlier one put to work."""
        person, dice = self.person, self.person.dice
        for _ in range(3):
            person.edit(self.cluster)
        person.add_node(self.other)
        run = person.start_plan(self.cluster, self.model, time_limit_s=2)
        person.edit(self.cluster)
        if dice.random() < 0.5:
            person.remove_node(self.other)
        ended = person.await_end(run)
        assert ended["status"] == "succeeded", ended
        self.plans.append(ended["plan"])
        person.deploy(self.cluster, self.plans[-1])
        if len(self.plans) > 1 and dice.random() < 0.5:  # back to what ran before
            person.deploy(self.cluster, self.plans[-2])

    def settle(self) -> None:
        """Nothing is killed any more: all that was begun ends."""
        person = self.person
        if person.deployments:
            person.await_ready(person.deployments[-1])

        def unfinished() -> list[Any]:
            return [
                row
                for path in ("plan-runs/", "simulations/")
                for row in person.rows(path)
                if row["status"] in UNFINISHED
            ] + [
                row
                for plan in person.rows("plans/")
                if (row := person.look(f"plans/{plan['id']}/explanation/"))["status"] in UNFINISHED
            ]

        until(lambda: not unfinished(), "every task has ended")

    def kv_manager(self) -> dict[str, Any]:
        diary = {
            "edits": self.person.edits,
            "added": self.person.added,
            "removed": self.person.removed,
            "topics": self.topics,
        }
        kept: dict[str, Any] = self.plane.ask_database(
            "tests.e2e.control_plane_books", json.dumps(diary)
        )
        return kept


class Killer:
    """Strikes at moments by lot until there were so many kills, or it is told to stop."""

    def __init__(self, plane: ControlPlane, *, kills: int, seed: int, mean_s: float) -> None:
        self.strikes: Counter[str] = Counter()
        self.done = threading.Event()
        self._plane = plane
        self._kills = kills
        self._mean_s = mean_s
        self._dice = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._strike, name="killer")

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _strike(self) -> None:
        try:
            while self._plane.kills < self._kills:
                if self._stopped.wait(self._dice.expovariate(1 / self._mean_s)):
                    return
                self.strikes[self._plane.strike(self._dice)] += 1
        finally:
            self.done.set()  # also where it failed, so that nobody waits for it for ever


def work_under_fire(day: Day, *, kills: int, seed: int, mean_s: float) -> str:
    """A day of work with so many kills; raises unless the books are right. Says what was done."""
    plane = day.plane
    with EventReader(plane.url, topics=day.topics, login_link=plane.login_link) as reader:
        with Killer(plane, kills=kills, seed=seed, mean_s=mean_s) as killer:
            while not killer.done.is_set():
                day.round()
        day.settle()
        kv_manager = day.kv_manager()
        assert not kv_manager["faults"], kv_manager["faults"]
        until(
            lambda: len(set(reader.seen)) >= len(kv_manager["events"]), "the page read all events"
        )
    # By id, unless transactions that ran at once were committed in another order.
    in_order = reader.seen if not plane.commits_at_once else sorted(reader.seen)
    assert in_order == sorted(set(reader.seen)), "events came twice, or out of order"
    # A node that was not heard in time may have been told of since the books were read.
    assert [event for event in in_order if event <= kv_manager["events"][-1]] == kv_manager[
        "events"
    ]
    wanted = day.person.look(f"deployments/{day.person.deployments[-1]}/")["generation"]
    until(lambda: set(day.doubles.generations.values()) == {wanted}, "every double heard of it")
    person = day.person
    struck = ", ".join(f"{count} {what}" for what, count in sorted(killer.strikes.items()))
    return (
        f"{plane.kills} kills ({struck}); {len(person.edits)} edits, {len(person.added)} rows "
        f"added, {len(person.removed)} removed, {len(person.runs)} plan runs, "
        f"{len(person.deployments)} deployments; {person.unknown} requests without an answer; "
        f"{len(reader.seen)} events read in {reader.breaks + 1} parts"
    )


def test_a_hundred_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    with ControlPlane.running(tmp_path, seed=5) as plane, ExitStack() as stack:
        print(work_under_fire(Day(plane, stack), kills=100, seed=5, mean_s=3.0))


@pytest.mark.postgres
@pytest.mark.redis
def test_a_hundred_kills_of_postgresql_and_redis_too_lose_and_repeat_nothing(
    tmp_path: Path, postgres: PostgresServer, redis: RedisServer
) -> None:
    services = {"DATABASE_URL": postgres.url, "REDIS_URL": redis.url}
    running = ControlPlane.running(tmp_path, servers=[postgres, redis], seed=7, **services)
    with running as plane, ExitStack() as stack:
        print(work_under_fire(Day(plane, stack), kills=100, seed=7, mean_s=3.0))
