import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.instances.latency_sweep import measure_latencies
from planner.domain.node_memory import KvMinimum
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from planner.latency_fit import fit_latency_model
from planner.serialization.problem_file import profile_from_dict
from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import (
    BudgetTooSmall,
    activation_bytes,
    fit_step,
    kv_pages,
    pages_in_free_memory,
    stage_memory,
)
from runtime.models.config import read_config
from runtime.models.model_config import ModelConfig
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder
from runtime.profiler.compute import (
    compute_profile,
    layer_times,
    least_bytes,
    throughput_tokens_per_s,
)
from runtime.profiler.main import main
from runtime.profiler.rehearsal import Beside
from runtime.profiler.step_times import (
    MOST_DECODES,
    StepCost,
    StepTimes,
    decode_batches,
    most_decodes,
)

LIMITS = EngineLimits(page_tokens=16, max_batch_tokens=64, max_context_tokens=256)
WORKLOAD = Workload(mean_prompt_tokens=96, mean_output_tokens=32)
CONFIG = ModelConfig(
    num_layers=12,
    hidden_size=128,
    intermediate_size=352,
    num_heads=4,
    num_kv_heads=2,
    head_size=32,
    vocab_size=512,
    layer_bytes=(4 * 184_576,) * 12,
    tie_word_embeddings=False,
    max_position_embeddings=512,
    dtype_name="float32",
)
# a decode step costs 1 ms + 2 ms a layer whatever its batch; 64 prompt tokens 1 ms + 10 ms a layer
TIMES = StepTimes(
    decode={batch: StepCost(fixed_s=0.001, per_layer_s=0.002) for batch in (1, 4)},
    prefill={64: StepCost(fixed_s=0.001, per_layer_s=0.010)},
)


CONTEXT = KvMinimum(requests=1, tokens=LIMITS.max_context_tokens)
BESIDE = Beside(head_s=0.1, handling_s=0.02, hop_s=0.003)


def profile(
    budget: int,
    *,
    speed: float = 1.0,
    config: ModelConfig = CONFIG,
    limits: EngineLimits = LIMITS,
) -> ComputeProfile:
    return compute_profile(
        "node",
        config=config,
        limits=limits,
        times=TIMES,
        beside=BESIDE,
        workload=WORKLOAD,
        device_name="CPU",
        memory_budget_bytes=budget,
        relative_speed=speed,
        kv_minimum=CONTEXT,
    )


def test_more_kv_cache_never_makes_a_node_slower() -> None:
    """Where a large step is slow, as on a CPU whose cache it leaves, smaller ones are run."""
    times = StepTimes(
        decode={
            1: StepCost(fixed_s=0.0, per_layer_s=0.001),
            8: StepCost(fixed_s=0.0, per_layer_s=0.002),
            64: StepCost(fixed_s=0.0, per_layer_s=0.1),
        },
        prefill=TIMES.prefill,
    )
    rates = [
        throughput_tokens_per_s(
            times,
            layers=1,
            kv_capacity_token_layers=room / 0.3 * 128,
            workload=WORKLOAD,
            max_batch_tokens=64,
        )
        for room in (1, 4, 8, 16, 64)
    ]
    assert rates == sorted(rates)
    assert rates[-1] == rates[2]


def test_throughput_is_the_tokens_of_a_request_over_the_time_it_takes() -> None:
    # room for 4 requests at the target occupancy, 3 layers
    capacity = 4 / 0.3 * 3 * 128
    found = throughput_tokens_per_s(
        TIMES,
        layers=3,
        kv_capacity_token_layers=capacity,
        workload=WORKLOAD,
        max_batch_tokens=64,
    )
    prefill_s = 0.031 + 0.031  # 64 tokens, then 32: no less than the least that was measured
    decode_s = 32 * 0.007 / 4
    assert found == pytest.approx(128 / (prefill_s + decode_s))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("budget", [6_000_000, 9_000_000, 14_000_000, 40_000_000])
@pytest.mark.parametrize("reserve", [0, 1_000_000])
def test_a_stage_finds_at_least_the_room_its_profile_promises_wherever_its_layers_are(
    tied: bool, budget: int, reserve: int
) -> None:
    """A stage opens with every range that the profile says it holds, and with no longer one."""
    config = replace(CONFIG, tie_word_embeddings=tied)
    limits = replace(LIMITS, reserve_bytes=reserve)
    found = profile(budget, config=config, limits=limits)
    held = 0
    for first, end in itertools.combinations(range(config.num_layers + 1), 2):
        ends = {"has_first": first == 0, "has_last": end == config.num_layers}
        try:
            pages = pages_of_a_stage(config, range(first, end), budget=budget, limits=limits)
        except BudgetTooSmall:
            assert end - first > found.most_layers(**ends)
            continue
        assert end - first <= found.most_layers(**ends)
        promised = found.kv_room_token_layers(end - first, **ends)
        assert pages * LIMITS.page_tokens >= promised
        held += 1
    assert held > 0


def pages_of_a_stage(
    config: ModelConfig, layers: range, *, budget: int, limits: EngineLimits = LIMITS
) -> int:
    """As a stage fits itself into its budget."""
    limits = fit_step(
        config,
        limits,
        memory_budget_bytes=budget,
        needed_bytes=lambda limits: stage_memory(config, limits, [layers]).needed,
    )
    return kv_pages(config, limits, memory_budget_bytes=budget, ranges=[layers])


@pytest.mark.parametrize("layers", [range(3, 4), range(2), range(9, 12), range(12)])
def test_the_bytes_that_a_refusal_names_suffice_and_one_less_does_not(layers: range) -> None:
    with pytest.raises(BudgetTooSmall) as raised:
        pages_of_a_stage(CONFIG, layers, budget=1000)
    needed = int(str(raised.value).split(": ")[1].split(" bytes are needed")[0])
    assert pages_of_a_stage(CONFIG, layers, budget=needed) >= LIMITS.context_pages * len(layers)
    with pytest.raises(BudgetTooSmall):
        pages_of_a_stage(CONFIG, layers, budget=needed - 1)


def test_a_middle_layer_pays_for_no_embedding_and_tied_ends_pay_once() -> None:
    tied = replace(CONFIG, tie_word_embeddings=True)
    table = CONFIG.embedding_bytes
    middle, whole, whole_tied = (
        stage_memory(config, LIMITS, [layers]).weights
        for config, layers in ((CONFIG, range(1, 2)), (CONFIG, range(12)), (tied, range(12)))
    )
    assert middle == CONFIG.bytes_per_layer
    assert whole - whole_tied == table
    ends = [stage_memory(tied, LIMITS, [layers]).weights for layers in (range(1), range(11, 12))]
    assert ends[0] == middle + table
    assert ends[1] == pytest.approx(middle + table, abs=CONFIG.hidden_size * 4)


def test_more_layers_are_slower_and_leave_less_room() -> None:
    found = profile(20_000_000)
    assert list(found.tokens_per_s) == sorted(found.tokens_per_s, reverse=True)
    assert list(found.kv_capacity_token_layers) == sorted(
        found.kv_capacity_token_layers, reverse=True
    )


def test_half_the_speed_is_half_the_throughput() -> None:
    whole, half = profile(20_000_000), profile(20_000_000, speed=0.5)
    assert half.tokens_per_s == pytest.approx([rate / 2 for rate in whole.tokens_per_s])
    assert half.max_layers == whole.max_layers


def test_a_layers_times_add_up_to_the_step_that_was_measured() -> None:
    found = profile(20_000_000, speed=0.5)
    assert found.layer_times is not None
    times = found.layer_times
    for layers in (1, 3, found.max_layers):
        decode_s = times.decode_s(4) * layers + times.decode_step_s
        prompt_s = times.prompt_s(64) * layers + times.prompt_step_s
        assert decode_s == pytest.approx(2 * (0.001 + layers * 0.002))
        assert prompt_s == pytest.approx(2 * (0.001 + layers * 0.010))
    assert times.decode_step_s == pytest.approx(2 * 0.001)


def test_a_slower_node_draws_tokens_more_slowly_but_its_loop_and_network_are_as_fast_as_any() -> (
    None
):
    times = profile(20_000_000, speed=0.5).layer_times
    assert times is not None
    assert (times.head_s, times.handling_s, times.hop_s) == (2 * 0.1, 0.02, 0.003)


def test_a_larger_step_never_takes_less_time_whatever_was_measured() -> None:
    measured = {1: 0.004, 2: 0.003, 4: 0.005}
    costs = {size: StepCost(fixed_s=0.0, per_layer_s=cost) for size, cost in measured.items()}
    times = layer_times(
        StepTimes(decode=costs, prefill=costs), BESIDE, layers=3, relative_speed=1.0
    )
    assert times.decode == ((1, 0.004), (2, 0.004), (4, 0.005))


def test_a_budget_below_the_needed_bytes_holds_no_layer() -> None:
    needed = least_bytes(CONFIG, LIMITS, kv_minimum=CONTEXT)
    assert profile(needed).max_layers == 1
    assert profile(needed - 1).max_layers == 0


def test_a_small_node_runs_smaller_steps_and_a_large_one_those_of_the_deployment() -> None:
    wide = replace(LIMITS, max_batch_tokens=512)
    small = fit_step(CONFIG, wide, memory_budget_bytes=8_000_000)
    assert LIMITS.page_tokens <= small.max_batch_tokens < 512
    assert activation_bytes(CONFIG, small, has_head=True) <= 1_000_000
    assert fit_step(CONFIG, wide, memory_budget_bytes=800_000_000) == wide
    assert fit_step(CONFIG, wide, memory_budget_bytes=1).max_batch_tokens == LIMITS.page_tokens


def test_a_budget_too_small_for_a_stage_names_the_bytes_needed() -> None:
    with pytest.raises(BudgetTooSmall) as raised:
        kv_pages(CONFIG, LIMITS, memory_budget_bytes=1_000_000, ranges=[range(2, 4)])
    needed = int(str(raised.value).split(": ")[1].split(" bytes are needed")[0])
    assert "budget of 1000000 bytes" in str(raised.value)
    assert kv_pages(CONFIG, LIMITS, memory_budget_bytes=needed, ranges=[range(2, 4)]) == 2 * 16
    with pytest.raises(BudgetTooSmall):
        kv_pages(CONFIG, LIMITS, memory_budget_bytes=needed - 1, ranges=[range(2, 4)])


def test_layers_that_two_ranges_share_are_paid_for_once_and_the_head_where_any_has_it() -> None:
    alone, both = (
        kv_pages(CONFIG, LIMITS, memory_budget_bytes=20_000_000, ranges=ranges)
        for ranges in ([range(1, 3)], [range(1, 3), range(2, CONFIG.num_layers)])
    )
    page_bytes = 2 * 16 * 2 * 32 * 4
    more = CONFIG.weights_bytes(1, CONFIG.num_layers) - CONFIG.weights_bytes(1, 3)
    more += activation_bytes(CONFIG, LIMITS, has_head=True)
    more -= activation_bytes(CONFIG, LIMITS, has_head=False)
    assert (alone - both) * page_bytes == pytest.approx(more, abs=page_bytes)


def test_pages_are_no_more_than_what_other_processes_leave() -> None:
    limits = replace(LIMITS, max_batch_tokens=16)
    few = pages_in_free_memory(CONFIG, limits, free_bytes=4_000_000, ranges=[range(2, 4)])
    more = pages_in_free_memory(CONFIG, limits, free_bytes=8_000_000, ranges=[range(2, 4)])
    page_bytes = 2 * 16 * 2 * 32 * 4
    assert (more - few) * page_bytes == pytest.approx(0.9 * 4_000_000, abs=page_bytes)
    assert few * page_bytes <= 0.9 * 4_000_000 - activation_bytes(CONFIG, limits, has_head=False)
    with pytest.raises(BudgetTooSmall, match="600000 bytes are free beside the weights"):
        pages_in_free_memory(CONFIG, limits, free_bytes=600_000, ranges=[range(2, 4)])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = TinySizes(num_layers=3, hidden_size=32, intermediate_size=48, vocab_size=300)
    make_tiny_checkpoint(directory, sizes=sizes, seed=0)
    return directory


@pytest.mark.processes
def test_the_program_measures_once_and_writes_a_profile_for_each_node(
    checkpoint: Path, tmp_path: Path
) -> None:
    import json

    output = tmp_path / "profiles.json"
    status = main(
        [
            *("--checkpoint", str(checkpoint), "--output", str(output)),
            *("--node", "fast:4000000:1", "--node", "slow:4000000:0.25"),
            *("--max-batch-tokens", "32", "--max-context-tokens", "128"),
        ]
    )
    assert status == 0
    document = json.loads(output.read_text())
    assert document["model"]["num_layers"] == read_config(checkpoint).num_layers
    fast, slow = (document["compute_profiles"][name] for name in ("fast", "slow"))
    assert fast["max_layers"] == 3
    assert slow["tokens_per_s"] == pytest.approx([rate / 4 for rate in fast["tokens_per_s"]])
    read = profile_from_dict(slow, name="slow").layer_times
    assert read is not None
    sizes = [tokens for tokens, _ in read.decode]  # some more where interpolation is not close
    pages = 4_000_000 // page_bytes(read_config(checkpoint), page_tokens=16)
    most = most_decodes(pages * 16, context_tokens=64 + 32 // 2)
    assert most > 16
    assert set(decode_batches(most)) <= set(sizes)
    assert sizes[-1] == min(most, MOST_DECODES)
    assert read.decode_s(1) == pytest.approx(4 * fast["layer_times"]["decode"][0][1])


def test_the_program_refuses_what_is_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--checkpoint", str(tmp_path), "--memory-budget-bytes", "1000"]) == 2
    assert "config.json does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("node", ["fast", "fast:x:1", "fast:1000:0", "fast:0:1", ":1000:1"])
def test_the_program_refuses_a_node_it_cannot_read(
    node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--checkpoint", "x", "--node", node])
    assert raised.value.code == 2
    assert node in capsys.readouterr().err


def test_a_sweep_has_every_batch_with_every_length_and_a_model_can_be_fitted_to_it(
    tmp_path: Path,
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    config = read_config(tmp_path)
    decoder = load_decoder(
        tmp_path, config, first=0, end=2, device=torch.device("cpu"), progress=lambda _d, _t: None
    )
    ticks = itertools.count()
    sweep = measure_latencies(
        decoder,
        layers=2,
        batches=(1, 3),
        lengths=(5, 33),
        page_tokens=16,
        clock=lambda: next(ticks) * 0.25,  # so that every run takes 0.25 s
    )
    pairs = [(1, 5), (1, 33), (3, 5), (3, 33)]
    for timings in (sweep.prefills, sweep.decodes):
        assert [(one.batch, one.tokens) for one in timings] == pairs
        assert {one.seconds for one in timings} == {0.25}
    model = fit_latency_model(sweep.prefills, sweep.decodes)
    assert model.decode_step_s(batch=2, context_tokens=20) == pytest.approx(0.25)
