"""The decode cap against a pipeline whose times are known."""

import heapq
import math

import pytest
from virtual_cluster import VirtualCluster

from planner.domain.layer_times import LayerTimes
from runtime.engine.decode_cap import DecodeCap
from runtime.protocol.engine_options import EngineOptions

FREE = EngineOptions(least_decode_cap=1, most_micro_batches=100)


def observed(
    options: EngineOptions, *, step_s: float, away_s: float, steps_at_once: float = math.inf
) -> DecodeCap:
    cap = DecodeCap(options, steps_at_once=lambda: steps_at_once)
    cap.observe_step(step_s)
    cap.observe_return(away_s)
    return cap


def test_before_anything_was_measured_all_decodes_are_taken() -> None:
    cap = DecodeCap(FREE)
    assert cap.limit(resident=100) is None
    cap.observe_step(0.1)
    assert cap.limit(resident=100) is None


def test_a_stage_that_runs_all_layers_alone_takes_all_decodes() -> None:
    assert observed(FREE, step_s=0.1, away_s=0.0).limit(resident=40) == 40


def test_the_cap_is_the_residents_over_the_steps_that_fit_into_a_cycle() -> None:
    cap = observed(FREE, step_s=0.125, away_s=0.4375)
    assert cap.micro_batches == 4.0
    assert cap.limit(resident=40) == 10
    assert cap.limit(resident=41) == 11


def test_the_cap_never_falls_below_its_floor_nor_micro_batches_rise_above_their_bound() -> None:
    options = EngineOptions(least_decode_cap=16, most_micro_batches=4)
    cap = observed(options, step_s=0.1, away_s=9.0)
    assert cap.micro_batches == 4.0
    assert cap.limit(resident=20) == 16
    assert cap.limit(resident=200) == 50


def test_where_cores_are_short_no_few_requests_are_left_over_for_a_step_of_their_own() -> None:
    for steps_at_once, micro_batches in ((1.05, 1.0), (1.6, 2.0), (2.4, 2.0), (7.0, 3.0)):
        cap = observed(FREE, step_s=0.1, away_s=0.25, steps_at_once=steps_at_once)
        assert cap.micro_batches == micro_batches
    assert observed(FREE, step_s=0.1, away_s=0.25, steps_at_once=1.05).limit(resident=32) == 32


def test_it_can_be_switched_off_or_fixed() -> None:
    off = observed(EngineOptions(decode_cap="off"), step_s=0.1, away_s=9.0)
    assert off.limit(resident=200) is None
    fixed = DecodeCap(EngineOptions(micro_batches=2.5))
    assert fixed.limit(resident=100) == 40
    assert observed(EngineOptions(decode_cap=7), step_s=0.1, away_s=9.0).limit(resident=200) == 7


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_in_a_ring_of_equal_stages_it_finds_about_as_many_micro_batches_as_stages(
    stages: int,
) -> None:
    """Waiting at the other stages must not lead to ever smaller batches."""
    caps = run_ring(stages=stages, requests=60, step_s=1.0, link_s=0.0, steps=4000)
    for cap in caps:
        assert cap.micro_batches == pytest.approx(stages, abs=0.8)


def test_slow_links_call_for_more_micro_batches_than_stages() -> None:
    caps = run_ring(stages=2, requests=60, step_s=1.0, link_s=2.0, steps=4000)
    for cap in caps:
        assert cap.micro_batches is not None
        assert cap.micro_batches > 3


def run_ring(
    *, stages: int, requests: int, step_s: float, link_s: float, steps: int
) -> list[DecodeCap]:
    """Requests go round a ring of stages whose step lasts `step_s` whatever its batch.

    As in a stage, what arrives during a step is seen when the step ends.
    """
    caps = [DecodeCap(FREE) for _ in range(stages)]
    waiting: list[list[tuple[float, int]]] = [[] for _ in range(stages)]  # (arrival, request)
    left: list[dict[int, float]] = [{} for _ in range(stages)]
    free_at = [0.0] * stages
    waiting[0] = [(0.0, request) for request in range(requests)]
    looks = [(0.0, stage) for stage in range(stages)]
    for _ in range(steps * stages):
        now, stage = heapq.heappop(looks)
        arrived = sorted(item for item in waiting[stage] if item[0] <= now)
        for _, request in arrived:
            if request in left[stage]:
                caps[stage].observe_return(now - left[stage].pop(request))
        batch = arrived[: caps[stage].limit(resident=requests)]
        if not batch:
            heapq.heappush(looks, (now + 0.05, stage))
            continue
        waiting[stage] = [item for item in waiting[stage] if item not in batch]
        free_at[stage] = now + step_s
        caps[stage].observe_step(step_s)
        for _, request in batch:
            left[stage][request] = free_at[stage]
            waiting[(stage + 1) % stages].append((free_at[stage] + link_s, request))
        heapq.heappush(looks, (free_at[stage], stage))
    return caps


TIMES = LayerTimes(
    prompt=((64, 0.004), (512, 0.02)),
    decode=((1, 0.004), (16, 0.005), (64, 0.009), (256, 0.03)),
)


def throughput(options: EngineOptions, *, stages: int, latency_s: float) -> float:
    cluster = VirtualCluster(
        stages=stages, requests=96, latency_s=latency_s, times=TIMES, options=options
    )
    cluster.run(until_s=4.0)
    return cluster.tokens_per_s(since_s=1.5, until_s=4.0)


@pytest.mark.parametrize(
    ("stages", "latency_s"), [pytest.param(4, 0.001, marks=pytest.mark.long), (2, 0.02)]
)
def test_on_real_stages_it_comes_near_the_best_fixed_number_of_micro_batches(
    stages: int, latency_s: float
) -> None:
    """Stages whose steps take the time of a table: loop, batcher, pages and frames are real."""
    fixed = {
        count: throughput(
            EngineOptions(micro_batches=count, least_decode_cap=1),
            stages=stages,
            latency_s=latency_s,
        )
        for count in (4, 8)
    }
    fixed[1] = throughput(EngineOptions(decode_cap="off"), stages=stages, latency_s=latency_s)
    measured = throughput(EngineOptions(), stages=stages, latency_s=latency_s)
    assert measured >= 0.9 * max(fixed.values()), (measured, fixed)
