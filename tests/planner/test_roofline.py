"""Estimates from data sheets, held against what can be reckoned by hand."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from planner.__main__ import main
from planner.capacity import kv_room_token_layers
from planner.domain.cluster import Cluster, Link, Node
from planner.domain.model_spec import ModelSpec
from planner.domain.node_memory import KvMinimum
from planner.domain.problem import Problem, Workload
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.roofline import (
    BYTES_SHARE,
    DATA_SHEETS,
    ESTIMATED,
    FLOPS_SHARE,
    LAUNCH_S,
    DataSheet,
    LayerShape,
    UnknownGpu,
    UnknownShape,
    Vocabulary,
    data_sheet,
    is_estimated,
    layer_shape,
    roofline_profile,
    roofline_times,
    sheet_name_of,
)
from planner.serialization.problem_file import profile_from_dict

LLAMA_70B = LayerShape(
    hidden_size=8192, intermediate_size=28672, query_heads=64, kv_heads=8, head_size=128
)
A100 = DATA_SHEETS["A100-40GB"]
WORKLOAD = Workload(mean_prompt_tokens=763, mean_output_tokens=232)


@pytest.mark.parametrize(
    ("driver", "sheet"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA H200", "H200"),
    ],
)
def test_a_gpu_is_known_as_its_driver_calls_it(driver: str, sheet: str) -> None:
    assert sheet_name_of(driver) == sheet


@pytest.mark.parametrize("driver", ["NVIDIA A10G", "AMD Instinct MI300X", "RTX", ""])
def test_a_gpu_without_a_data_sheet_is_not_taken_for_another(driver: str) -> None:
    with pytest.raises(UnknownGpu):
        sheet_name_of(driver)


def test_a_layer_of_llama_70b_has_the_parameters_it_has() -> None:
    assert LLAMA_70B.parameters == 855_638_016  # q, k, v, o and the three of the MLP
    assert LLAMA_70B.kv_token_bytes == 4096


def test_few_rows_take_the_time_to_read_the_weights_and_many_that_to_multiply() -> None:
    times = roofline_times(A100, LLAMA_70B, context_tokens=0)
    reading_s = 2 * 855_638_016 / (1555e9 * BYTES_SHARE)
    assert times.decode_s(1) == pytest.approx(LAUNCH_S + reading_s)
    assert times.prompt_s(16) == pytest.approx(LAUNCH_S + reading_s)
    computing_s = 2 * 855_638_016 * 4096 / (312e12 * FLOPS_SHARE)
    assert times.prompt_s(4096) == pytest.approx(LAUNCH_S + computing_s)


def test_decodes_read_their_keys_and_values() -> None:
    near = roofline_times(A100, LLAMA_70B, context_tokens=100)
    far = roofline_times(A100, LLAMA_70B, context_tokens=2100)
    more_s = 32 * 2000 * 4096 / (1555e9 * BYTES_SHARE)
    assert far.decode_s(32) - near.decode_s(32) == pytest.approx(more_s)


@pytest.mark.parametrize("gpu", DATA_SHEETS)
def test_a_profile_is_whole_and_says_that_it_is_an_estimate(gpu: str) -> None:
    sheet = data_sheet(gpu)
    found = roofline_profile("x", sheet, LLAMA_70B, gpu=gpu, num_layers=80, workload=WORKLOAD)
    assert ESTIMATED in found.gpu
    assert found.max_layers * LLAMA_70B.weights_bytes < 0.9 * sheet.memory_bytes
    assert list(found.tokens_per_s) == sorted(found.tokens_per_s, reverse=True)
    assert all(room > 0 for room in found.kv_capacity_token_layers)


def test_the_command_prints_a_profile_for_a_problem_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "hidden_size": 8192,
                "intermediate_size": 28672,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "num_hidden_layers": 80,
            }
        )
    )
    assert main(["roofline", str(config), "--gpu", "H200"]) == 0
    told = json.loads(capsys.readouterr().out)["compute_profiles"]["H200"]
    assert profile_from_dict(told, name="H200").max_layers == 72
    own = ["--memory-bytes", "1e10", "--bytes-per-s", "1e11", "--flops", "1e13"]
    assert main(["roofline", str(config), "--gpu", "mine", *own]) == 0
    assert json.loads(capsys.readouterr().out)["compute_profiles"]["mine"]["max_layers"] == 4


@pytest.mark.parametrize("gpu", ["H200", "mine"])
def test_some_numbers_of_a_gpu_without_the_others_are_refused_not_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gpu: str
) -> None:
    some = ["--memory-bytes", "1e10", "--flops", "1e13"]
    assert main(["roofline", str(tmp_path / "config.json"), "--gpu", gpu, *some]) == 2
    assert "--bytes-per-s is missing; give all of" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"hidden_size": "x"}'])
def test_what_is_no_config_or_no_gpu_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    config = tmp_path / "config.json"
    config.write_text(content)
    assert main(["roofline", str(config), "--gpu", "H200"]) == 2
    assert "config.json" in capsys.readouterr().err
    assert main(["roofline", str(config), "--gpu", "H300"]) == 2
    assert "H100-SXM, H200" in capsys.readouterr().err


def test_a_sheet_of_nothing_is_refused() -> None:
    with pytest.raises(UnknownGpu, match="H300"):
        data_sheet("H300")


@pytest.mark.parametrize("memory_bytes", [0.0, math.nan, math.inf])
def test_a_sheet_with_a_number_that_none_can_be_is_refused(memory_bytes: float) -> None:
    with pytest.raises(UnknownGpu, match=r"memory_bytes is .* must be (greater than 0|finite)"):
        DataSheet(memory_bytes=memory_bytes, bytes_per_s=1.0, flops=1.0)


def spec(**changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "name": "llama-70b",
        "num_layers": 80,
        "activation_bytes_per_token": 2 * 8192,
        "token_bytes": 4,
        "bytes_per_layer": LLAMA_70B.weights_bytes,
        "num_heads": 64,
        "num_kv_heads": 8,
    }
    return ModelSpec(**values | changes)  # type: ignore[arg-type]


def test_the_shape_of_a_layer_follows_from_what_the_planner_knows_of_a_model() -> None:
    assert layer_shape(spec()) == LLAMA_70B


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_heads": None}, "give num_heads"),
        ({"bytes_per_layer": 1e6}, "no decoder layer in 16 bits"),
        ({"num_heads": 100_000}, "no decoder layer in 16 bits"),
    ],
)
def test_a_model_of_unknown_shape_is_refused_with_what_lacks(
    changes: dict[str, object], told: str
) -> None:
    with pytest.raises(UnknownShape, match=told):
        layer_shape(spec(**changes))


def test_an_estimate_says_that_it_is_one() -> None:
    estimated = roofline_profile(
        "a", A100, LLAMA_70B, gpu="A100-40GB", num_layers=80, workload=WORKLOAD
    )
    assert is_estimated(estimated)
    assert not is_estimated(replace(estimated, gpu="A100-40GB"))


# Llama-3.3-70B
VOCABULARY = Vocabulary(size=128_256, is_tied=False)


def home_cluster() -> Problem:
    """4 T4, 2 L4 and an A100 of 80 GB at home, between them 10 Gb/s."""
    gpus = {"T4": 4, "L4": 2, "A100-80GB": 1}
    profiles = {
        gpu: roofline_profile(
            gpu,
            data_sheet(gpu),
            LLAMA_70B,
            gpu=gpu,
            num_layers=80,
            workload=WORKLOAD,
            vocabulary=VOCABULARY,
        )
        for gpu in gpus
    }
    nodes = tuple(
        Node(name=f"{gpu}-{number}", region="home", compute_profile=gpu)
        for gpu, count in gpus.items()
        for number in range(count)
    )
    link = Link(source="home", target="home", bandwidth_bytes_per_s=1.25e9, latency_s=2e-4)
    return Problem(
        name="home",
        model=spec(),
        workload=WORKLOAD,
        compute_profiles=profiles,
        cluster=Cluster(name="home", coordinator_region="home", nodes=nodes, region_links=(link,)),
    )


@pytest.mark.parametrize("objective", ["flow", "decode"])
def test_llama_70b_gets_a_plan_on_four_t4_two_l4_and_an_a100(objective: str) -> None:
    problem = home_cluster()
    plan = compute_plan(
        problem,
        options=PlanOptions(objective=objective, time_limit_s=1.0),
        progress=lambda _: None,
        cancel=NeverCancelled(),
        clock=time.process_time,  # a busy machine must not make the search a shorter one
    )
    assert plan.flow.value_tokens_per_s > 0
    table, layer, token = 2 * 128_256 * 8192, LLAMA_70B.weights_bytes, LLAMA_70B.kv_token_bytes
    for name, held in plan.placement.layers.items():
        weights = len(held) * layer + table * ((held.first == 0) + (held.end == 80))
        kv_bytes = kv_room_token_layers(problem, name, held) * token
        assert kv_bytes >= 8 * 995 * len(held) * token
        assert weights + kv_bytes <= 0.9 * problem.profile_of(name).vram_bytes


def test_a_minimum_of_more_and_longer_requests_leaves_room_for_fewer_layers() -> None:
    few, many = (
        roofline_profile(
            "L4",
            data_sheet("L4"),
            LLAMA_70B,
            gpu="L4",
            num_layers=80,
            workload=WORKLOAD,
            minimum=KvMinimum(requests=requests, tokens=4096),
        )
        for requests in (1, 100)
    )
    assert few.max_layers > many.max_layers > 0
    assert many.kv_capacity_token_layers[-1] >= many.max_layers * 100 * 4096


def test_tied_embeddings_are_held_once_by_a_node_with_the_whole_model() -> None:
    """Room for both ends with tied embeddings only."""
    small = LayerShape(
        hidden_size=2048, intermediate_size=8192, query_heads=32, kv_heads=8, head_size=64
    )
    tied, untied = (
        roofline_profile(
            "x",
            DataSheet(memory_bytes=3.6e9, bytes_per_s=1e11, flops=1e13),
            small,
            gpu="x",
            num_layers=16,
            workload=WORKLOAD,
            vocabulary=Vocabulary(size=128_256, is_tied=is_tied),
        ).memory
        for is_tied in (True, False)
    )
    assert tied is not None
    assert untied is not None
    assert tied.first == untied.first
    assert (tied.both.max_layers, untied.both.max_layers < 16) == (16, True)
