"""Requests that end early, many of them: no page and no memory stays behind."""

import gc
import random

import psutil
import pytest
from emulated_cluster import EmulatedCluster

from runtime.protocol.data import Flag, Reason
from runtime.protocol.engine_options import EngineOptions

TWO = {"a": (0, 4), "c": (4, 8)}
REQUESTS = 10_000
SETTLED = 5_000


def used(cluster: EmulatedCluster) -> list[int]:
    return [stage.stats().kv_pages_used for stage in cluster.stages.values()]


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5, 9])
def test_a_released_request_frees_its_pages_everywhere_within_two_steps(turns: int) -> None:
    cluster = EmulatedCluster(TWO, options=EngineOptions())
    cluster.prompt(1, range(20), max_tokens=50, epoch=0)
    for _ in range(turns):
        cluster.turn()
    assert max(used(cluster)) > 0
    cluster.release(1, epoch=0)
    cluster.turn()
    cluster.turn()
    assert used(cluster) == [0, 0]
    for stage in cluster.stages.values():
        stage.check_pages()


@pytest.mark.slow
def test_ten_thousand_requests_with_random_ends_leave_no_page_and_no_memory() -> None:
    """Shared prompts, a pool too small for all, preemptions, and ends at any moment."""
    rng = random.Random(4)
    cluster = EmulatedCluster(TWO, pages=900, options=EngineOptions())
    prompts = [[rng.randrange(300) for _ in range(16)] for _ in range(20)]
    running: dict[int, int] = {}  # request -> epoch
    started = cancelled = finished = refused = 0
    settled_bytes = 0
    while started < REQUESTS or running:
        while started < REQUESTS and len(running) < 60:
            tail = [rng.randrange(300) for _ in range(rng.randrange(12))]
            cluster.prompt(
                started, rng.choice(prompts) + tail, max_tokens=rng.randrange(1, 12), epoch=0
            )
            running[started] = 0
            started += 1
            if started == SETTLED:
                gc.collect()
                settled_bytes = psutil.Process().memory_info().rss
        for entry, token_id in cluster.turn():
            if entry.request not in running:
                continue
            if token_id is None:
                refused += 1
                assert entry.reason in (
                    Reason.NO_KV_PAGES,
                    Reason.PREEMPTED,
                    Reason.PREFIX_GONE,
                )
            elif Flag.FINISHED not in entry.flags:
                continue
            else:
                finished += 1
            del running[entry.request]
            cluster.release(entry.request, epoch=entry.epoch)
        for request in [request for request in running if rng.random() < 0.08]:
            cancelled += 1
            cluster.release(request, epoch=running.pop(request))
    for _ in range(3):
        cluster.turn()
    assert finished > 1000
    assert cancelled > 1000
    assert refused > 10
    for stage in cluster.stages.values():
        stage.check_pages()
        stats = stage.stats()
        assert (stats.kv_pages_used, stats.sequences) == (0, 0)
        assert stats.prefix_tokens_total > 0
    gc.collect()
    grown_bytes = psutil.Process().memory_info().rss - settled_bytes
    assert grown_bytes < 16 * 2**20
