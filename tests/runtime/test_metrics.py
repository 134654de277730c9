"""What Prometheus reads of coordinators and agents, read as Prometheus reads it."""

import asyncio
from pathlib import Path

import httpx
import pytest
from coordinator_doubles import Clock, write_checkpoint
from coordinator_rig import Rig, with_coordinator
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from planner.domain.pipeline import Pipeline, PipelineStage
from runtime.agent import metrics as agent_metrics
from runtime.coordinator.instance_group import InstanceLedger
from runtime.coordinator.metrics import metrics_page
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.request_stats import RequestStats
from runtime.http_process import CannotListen, listen
from runtime.instances.engine_load import read_load
from runtime.metrics_port import metrics_port
from runtime.protocol.control import (
    CoordinatorReport,
    LinkStats,
    NodeTraffic,
    ObservedState,
    StageStats,
)
from runtime.protocol.exposition import counter, gauge, page
from runtime.protocol.phases import Phase


def read(text: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """Of the one sample of that name that has these labels."""
    (found,) = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


def report(**changes: object) -> CoordinatorReport:
    fields: dict[str, object] = {
        "generation": 3,
        "serving": True,
        "window_s": 10.0,
        "requests_running": 2,
        "requests_waiting": 1,
        "requests_total": 9,
        "requests_failed_total": 1,
        "requests_rejected_total": 1,
        "prompt_tokens_total": 100,
        "output_tokens_total": 50,
        "prompt_tokens_per_s": 1.0,
        "output_tokens_per_s": 2.0,
    }
    return CoordinatorReport.model_validate(fields | changes)


def life(*, routed_s: float = 0.0, prompt_tokens: int | None = None) -> RequestLife:
    """Of a request that came at second 0 and was routed."""
    begun = RequestLife(arrived_at=0.0, origin=Origin(), prompt_tokens=prompt_tokens)
    begun.follow(Pipeline(stages=(PipelineStage(node="a", first=0, end=2),)), now=routed_s)
    return begun


def test_requests_are_told_under_the_names_of_vllm_and_can_be_read_as_its_own() -> None:
    stats = RequestStats(window_s=10.0, clock=Clock())
    for ttft_s in (0.2, 0.02, 3.0):
        stats.token(life(prompt_tokens=7), now_s=ttft_s)
    for outcome in ("stop", "stop", "length", "cancelled", "timeout"):
        stats.came_to(outcome)
    stats.rejected()
    nodes = {
        name: NodeTraffic(
            kv_estimate_token_layers=used,
            kv_capacity_token_layers=room,
            tokens_total=5,
            ready=ready,
        )
        for name, used, room, ready in (("a", 30.0, 40.0, True), ("b", 1.0, 0.0, False))
    }
    text = metrics_page(report(nodes=nodes), stats, model_name="tiny")
    found = read(text)
    assert value(found, "vllm:time_to_first_token_seconds_count", model_name="tiny") == 3
    assert value(found, "vllm:time_to_first_token_seconds_sum") == pytest.approx(3.22)
    assert value(found, "vllm:time_to_first_token_seconds_bucket", le="0.2") == 2
    assert value(found, "vllm:time_to_first_token_seconds_bucket", le="+Inf") == 3
    assert value(found, "vllm:request_success_total", finished_reason="stop") == 2
    assert value(found, "vllm:request_success_total", finished_reason="abort") == 1
    assert value(found, "vllm:request_success_total", finished_reason="error") == 2
    assert value(found, "helix_coordinator_requests_total", outcome="timeout") == 1
    assert value(found, "helix_coordinator_requests_total", outcome="queue_full") == 1
    assert value(found, "helix_coordinator_node_up", node="b") == 0
    assert value(found, "helix_coordinator_edge_tokens_total", source="coordinator") == 3
    load = read_load(text.decode())  # as our own front reads vLLM's
    assert (load.running, load.waiting, load.kv_usage) == (2, 1, 0.75)


def test_parts_of_a_request_add_up_and_an_unknown_prompt_is_not_counted_as_none() -> None:
    stats = RequestStats(window_s=10.0, clock=Clock())
    ended = life(routed_s=0.5)
    for now_s in (2.0, 3.0, 4.0, 5.0):
        stats.token(ended, now_s=now_s)
    stats.finished(ended, now_s=5.0)
    found = read(metrics_page(report(), stats, model_name="tiny"))
    parts = ("queue", "prefill", "decode")
    seconds = [value(found, f"vllm:request_{part}_time_seconds_sum") for part in parts]
    assert seconds == [0.5, 1.5, 3.0]
    assert value(found, "vllm:request_prompt_tokens_count") == 0
    assert value(found, "vllm:request_generation_tokens_sum") == 4


def test_what_instances_answer_is_over_once_and_their_pipelines_count_for_themselves() -> None:
    clock = Clock()
    stats = RequestStats(window_s=10.0, clock=clock)
    stage = Pipeline(stages=(PipelineStage(node="a", first=0, end=2),))
    ledger = InstanceLedger(stats=stats, pipelines={"x": stage}, clock=clock)
    for number, instance in enumerate(("x", "x", "x", "pipelines")):
        ledger.arrived(number, asker="")
        ledger.sent(number, instance)
    clock.now += 1
    ledger.produced(0, 2)
    ledger.answered(0, (5, 2))
    ledger.gone(0, failed=False)
    ledger.gone(1, failed=False)
    ledger.gone(2, failed=True)
    ledger.gone(3, failed=False)
    assert stats.outcomes == {"stop": 1, "cancelled": 1, "failed": 1}
    assert stats.prompt_lengths.total == 5
    assert stats.prefill_s.total == pytest.approx(1)


def test_a_request_that_was_answered_is_counted_in_every_part(tmp_path: Path) -> None:
    async def visit(h: Rig) -> None:
        await h.chat(max_tokens=3)
        assert h.stats.outcomes == {"length": 1}
        assert sum(h.stats.queued_s.counts) == sum(h.stats.decode_s.counts) == 1
        assert h.stats.output_lengths.total == 3
        assert (await h.client.get("/metrics")).status_code == 404  # nobody told it what to tell

    with_coordinator(write_checkpoint(tmp_path / "checkpoint"), visit)


STAGE = StageStats(
    kv_pages_total=40,
    kv_pages_used=10,
    sequences=2,
    steps_total=7,
    prompt_tokens_total=8,
    decode_tokens_total=9,
    busy_s_total=1.5,
    uptime_s=2.0,
    weights_bytes=10,
    kv_bytes=11,
    links={"b": LinkStats(bandwidth_bytes_per_s=1e6, rtt_s=0.01, urgent_bytes_total=3)},
)


def test_an_agent_tells_of_its_cache_its_phase_and_its_links() -> None:
    observed = ObservedState(generation=4, phase=Phase.READY, stage=STAGE)
    found = read(
        agent_metrics.metrics_page(
            observed,
            node="n1",
            model_name="tiny",
            heartbeat_age_s=0.5,
            heartbeats_failed_total=2,
        )
    )
    assert value(found, "vllm:kv_cache_usage_perc", node="n1", model_name="tiny") == 0.25
    assert value(found, "helix_agent_phase", state="ready") == 1
    assert value(found, "helix_agent_phase", state="failed") == 0
    assert value(found, "helix_agent_heartbeats_failed_total") == 2
    assert value(found, "helix_agent_link_bytes_total", target="b", lane="urgent") == 3
    assert "helix_agent_delayed_seconds" not in found  # not known, so not told


def test_an_agent_that_knows_nothing_yet_tells_only_that_it_was_not_heard() -> None:
    text = agent_metrics.metrics_page(
        None, node="n1", model_name="", heartbeat_age_s=None, heartbeats_failed_total=0
    )
    assert set(read(text)) == {"helix_agent_heartbeats_failed"}


def test_families_of_one_name_from_two_sources_are_one_and_labels_are_escaped() -> None:
    odd = 'a "b"\n\\c'
    text = page(
        [
            gauge("helix_x", "words", [({"name": odd}, 1.0)]),
            gauge("helix_x", "words", [({"name": "d"}, 2.0)]),
            counter("helix_none_total", "nothing is known", [({}, None)]),
        ]
    )
    (family,) = read(text).values()
    assert [sample.labels["name"] for sample in family.samples] == [odd, "d"]


def test_a_metrics_port_answers_programs_of_this_machine_until_it_is_left() -> None:
    async def check() -> None:
        async with metrics_port(0, lambda: b"helix_x 1.0\n") as port:
            url = f"http://127.0.0.1:{port}/metrics"
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.get(url)).text == "helix_x 1.0\n"
                rebound = await client.get(url, headers={"Host": "evil.example"})
                assert rebound.status_code == 400
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    asyncio.run(check())


def test_a_metrics_port_that_is_taken_names_its_own_option() -> None:
    async def check() -> None:
        with (
            listen("127.0.0.1", 0) as taken,
            pytest.raises(CannotListen, match="choose another --metrics-port"),
        ):
            async with metrics_port(taken.getsockname()[1], lambda: b""):
                pass

    asyncio.run(check())
