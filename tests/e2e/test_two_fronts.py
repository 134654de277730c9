"""Two coordinators serve the same stages, one is killed: the other's clients notice nothing."""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from runtime.models.tiny_checkpoint import make_tiny_checkpoint
from tests.e2e.chaos_cluster import API_KEY, MODEL, SIZES, ChaosCluster, Served, running_cluster
from tests.e2e.chaos_load import new_tokens
from tests.waiting import PATIENCE_S, until

# tests/runtime/test_shared_stages.py does it in one process.
pytestmark = [pytest.mark.e2e, pytest.mark.long]

LONG, SHORT = 400, 10
OTHER = "coordinator:2"
STAGES = {"one": (0, 3), "two": (3, 6)}
WEIGHTS = {SOURCE: {"one": 1.0}, "one": {"two": 1.0}, "two": {SINK: 1.0}}


def test_one_of_two_coordinators_may_die_at_any_moment(tmp_path: Path) -> None:
    dice = random.Random(3)
    prompts = [[dice.randrange(5, 260) for _ in range(40)] for _ in range(2)]
    with two_fronts(tmp_path) as cluster:
        ports = [int(url.rpartition(":")[2]) for url in cluster.urls.values()]
        balancer = f"http://127.0.0.1:{cluster.cabling.lay('clients', 'fronts', *ports)}"

        def behind() -> int:
            return cluster.cabling.listening("clients", "fronts")

        def ask(coordinator: str) -> list[Streaming]:
            url = cluster.urls[coordinator]
            return [Streaming(url=url, prompt=prompt, tokens=LONG) for prompt in prompts]

        answers = [stream.answer() for stream in ask(COORDINATOR)]
        assert min(map(len, answers)) > 100, "they are long enough to be disturbed"
        while not all(most_pages(cluster, stage) for stage in STAGES):  # reported once a second
            assert [stream.answer() for stream in ask(COORDINATOR)] == answers
        asked_again = clients_of(balancer, prompts[0], answers[0])
        assert (asked_again, behind()) == (0, 2)

        ours, theirs = ask(COORDINATOR), ask(OTHER)
        until(lambda: all(stream.token_ids for stream in (*ours, *theirs)), "all stream")
        cluster.kill_coordinator(OTHER)
        asked_again = clients_of(balancer, prompts[0], answers[0])
        assert (asked_again, behind()) == (0, 1)
        assert [stream.answer() for stream in ours] == answers
        for stream, answer in zip(theirs, answers, strict=True):
            stream.thread.join()
            assert stream.token_ids == answer[: len(stream.token_ids)]
            assert len(stream.token_ids) < len(answer), "it died before"
        lost = f"{OTHER!r} is lost"
        until(lambda: all(lost in cluster.stage_log(stage) for stage in STAGES), "stages know it")
        until(lambda: not cluster.pages_held(), "all pages are given back")
        assert_no_stage_noticed(cluster)


@contextmanager
def two_fronts(folder: Path) -> Iterator[ChaosCluster]:
    sizes = replace(SIZES, dtype="float32")
    make_tiny_checkpoint(folder / "checkpoint", sizes=sizes, seed=5)
    served = Served(
        checkpoint=folder / "checkpoint",
        layers=STAGES,
        weights=WEIGHTS,
        fronts=(COORDINATOR, OTHER),
    )
    with running_cluster(folder, served) as cluster:
        yield cluster


def most_pages(cluster: ChaosCluster, stage: str) -> int:
    """Of all that it reported so far."""
    return max((told["kv_pages_used"] for told in cluster.stats(stage)), default=0)


def clients_of(balancer: str, prompt: list[int], answer: list[int]) -> int:
    """A few are answered; how many had to ask again, as their coordinator died with them."""
    asked_again = 0
    for _ in range(4):
        stream = Streaming(url=balancer, prompt=prompt, tokens=SHORT)
        stream.thread.join()
        if stream.error:
            asked_again += 1
            stream = Streaming(url=balancer, prompt=prompt, tokens=SHORT)
        assert stream.answer() == answer[:SHORT]
    return asked_again


def assert_no_stage_noticed(cluster: ChaosCluster) -> None:
    """There were pages for all, and no request but the dead one's was forgotten."""
    for stage in STAGES:
        told = cluster.stats(stage)
        assert most_pages(cluster, stage) > 0
        assert all(stats["kv_pages_used"] <= stats["kv_pages_total"] for stats in told)
        assert f"{COORDINATOR!r} is lost" not in cluster.stage_log(stage)


@dataclass(slots=True, kw_only=True)
class Streaming:
    """An answer that comes in by a thread of its own; `error` says what ended it early."""

    url: str
    prompt: list[int]
    tokens: int
    token_ids: list[int] = field(default_factory=list)
    error: str = ""
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def answer(self) -> list[int]:
        """Once it has ended. Raises AssertionError if it did not end well."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        assert not self.error, self.error
        return self.token_ids

    def _ask(self) -> None:
        """By a connection of its own, so that a balancer may send it elsewhere."""
        body = {
            "model": MODEL,
            "prompt": self.prompt,
            "max_tokens": self.tokens,
            "temperature": 0,
            "stream": True,
            "return_token_ids": True,
        }
        headers = {"Authorization": f"Bearer {API_KEY}"}
        url = f"{self.url}/v1/completions"
        try:
            with httpx.stream("POST", url, json=body, headers=headers, timeout=PATIENCE_S) as reply:
                if reply.status_code != httpx.codes.OK:
                    self.error = f"{reply.status_code}: {reply.read()!r}"
                    return
                for line in reply.iter_lines():
                    if line.startswith("data: {"):
                        event = json.loads(line.removeprefix("data: "))
                        self.error = self.error or str(event.get("error", ""))
                        self.token_ids += new_tokens(event)
        except httpx.TransportError as error:
            self.error = repr(error)
