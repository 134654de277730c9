"""Latencies as the coordinator counts them."""

import pytest
from coordinator_doubles import Clock

from planner.domain.pipeline import Pipeline, PipelineStage
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.request_stats import RequestStats
from runtime.protocol.control import LATENCY_BOUNDS_S


def life(*tokens_s: float) -> RequestLife:
    """Of a request that came and was routed at second 0."""
    begun = RequestLife(arrived_at=0.0, origin=Origin())
    begun.follow(Pipeline(stages=(PipelineStage(node="a", first=0, end=2),)), now=0.0)
    for now_s in tokens_s:
        begun.note_token(now=now_s)
    return begun


def test_tpot_is_the_time_after_the_first_token_for_each_of_the_others() -> None:
    stats = RequestStats(window_s=10.0, clock=Clock())
    stats.finished(life(1.0, *range(2, 10)), now_s=5.0)
    assert stats.tpot_s.percentile(0.5) == pytest.approx(0.5)
    assert stats.e2e_s.percentile(0.5) == 5.0


def test_a_single_token_has_no_tpot() -> None:
    stats = RequestStats(window_s=10.0, clock=Clock())
    stats.finished(life(1.0), now_s=1.0)
    assert stats.tpot_s.percentile(0.5) is None
    assert sum(stats.latency_counts()["tpot"]) == 0
    assert sum(stats.latency_counts()["e2e"]) == 1


def test_counts_stay_when_the_window_has_passed_and_each_bound_closes_its_interval() -> None:
    clock = Clock()
    stats = RequestStats(window_s=10.0, clock=clock)
    for bound in LATENCY_BOUNDS_S:
        stats.itl_s.add(bound)
    stats.itl_s.add(1e6)
    clock.now += 100
    assert stats.itl_s.percentile(0.5) is None
    assert stats.latency_counts()["itl"] == (1,) * (len(LATENCY_BOUNDS_S) + 1)
