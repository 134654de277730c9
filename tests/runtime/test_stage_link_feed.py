"""What a stage tells its links, so that they know when decodes come, and asks of them."""

import pytest
from emulated_cluster import LAYERS, emulation_of
from virtual_cluster import VirtualCluster

from planner.domain.layer_times import LayerTimes
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import Stage
from runtime.protocol.control import LinkStats
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.in_memory import InMemoryNetwork
from runtime.transport.recent_rate import RecentRate

LATENCY_S = 0.1
TIMES = LayerTimes(prompt=((1, 0.001), (64, 0.01)), decode=((1, 0.005), (8, 0.005)))


def test_a_stage_knows_when_its_next_decode_will_leave_also_between_steps() -> None:
    cluster = VirtualCluster(
        stages=2,
        requests=1,
        latency_s=LATENCY_S,
        times=TIMES,
        options=EngineOptions(),
        output_tokens=200,
    )
    node = cluster.nodes["n0"]
    due = []
    for turn in range(20):  # of a cycle of 0.21 s each
        now_s = 6.0 + turn * 0.053
        cluster.run(until_s=now_s)
        due.append((now_s, node.forecast.due_s(now_s)))
    cluster.run(until_s=9.0)
    for asked_s, due_s in due:
        left_s = min(left_s for left_s in node.decodes_left_s if left_s > asked_s)
        assert due_s == pytest.approx(left_s, abs=0.005)


def test_a_stage_reports_what_is_known_of_its_links() -> None:
    known = {"b": LinkStats(bandwidth_bytes_per_s=5e6, urgent_messages_total=3)}
    stage = Stage(
        name="a",
        generation=1,
        incarnation=1,
        limits=EngineLimits(page_tokens=4, max_batch_tokens=8, max_context_tokens=64),
        backend=EmulatedRunner(emulation_of(), first=0, end=LAYERS, page_tokens=4),
        transport=InMemoryNetwork().join("a"),
        options=EngineOptions(),
        link_stats=lambda: known,
    )
    assert stage.stats().links == known


def test_the_rate_of_late_follows_what_went_and_fades() -> None:
    rate = RecentRate()
    assert rate.bytes_per_s(5.0) == 0.0
    for number in range(200):
        rate.add(1000, now_s=number * 0.1)
    assert rate.bytes_per_s(20.0) == pytest.approx(10_000, rel=0.1)
    assert rate.bytes_per_s(50.0) < 10
