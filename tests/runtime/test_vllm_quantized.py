"""Quantised checkpoints: their bytes as the planner counts them, and their stages on vLLM."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_under_test import IS_VLLM, make_runner
from family_checkpoints import save
from forced_logits import Cut, distance, logits_of
from quantized_checkpoints import ELSEWHERE, pack_experts, quantize
from safetensors.torch import load_file
from stage_cluster import GREEDY, StageCluster
from vllm_families import EQUAL_TO_VLLM, NEAR_ROUNDED, REFUSED_ON_CPUS, VLLM_FAMILIES

from runtime.checkpoints.model_facts import read_facts
from runtime.engine.backend import CannotRun
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint

LAYERS, CUTS = 6, [Cut(layers=layers) for layers in (range(2), range(2, 5), range(5, 6))]
SIZES = TinySizes(
    num_layers=LAYERS,
    hidden_size=256,
    intermediate_size=512,
    head_size=64,
    vocab_size=300,
    max_position_embeddings=128,
    dtype="bfloat16",
)
PROMPT = [7 + 3 * index % 200 for index in range(40)]
PROMPTS = [PROMPT[:5], PROMPT[2:20], PROMPT]
ANSWER = 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    make_tiny_checkpoint(folder, sizes=SIZES, seed=5)
    return folder


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("w4a16", "compressed-tensors-w4a16"),
        ("w8a8", "compressed-tensors-w8a8-int8"),
        ("awq", "awq-4bit"),
        ("gptq", "gptq-4bit"),
    ],
)
def test_layers_weigh_what_the_files_say(kind: str, told: str, plain: Path, tmp_path: Path) -> None:
    quantize(plain, tmp_path / kind, kind)
    facts, before = read_facts(tmp_path / kind), read_facts(plain)
    assert facts.bytes_per_layer == layer_bytes(tmp_path / kind) < 0.6 * before.bytes_per_layer
    assert facts.embedding_bytes == before.embedding_bytes
    assert facts.activation_bytes_per_token == before.activation_bytes_per_token
    assert facts.dtype == told


def layer_bytes(checkpoint: Path) -> int:
    """Of a layer in the middle, as its files have it."""
    stored = load_file(checkpoint / "model.safetensors")
    return sum(tensor.nbytes for name, tensor in stored.items() if ".layers.3." in name)


@pytest.mark.parametrize("kind", [*NEAR_ROUNDED, *ELSEWHERE])
def test_layers_weigh_what_the_files_say_where_cpus_have_no_kernel_too(
    kind: str, plain: Path, tmp_path: Path
) -> None:
    quantize(plain, tmp_path / "model", kind)
    weighs = read_facts(tmp_path / "model").bytes_per_layer
    assert weighs == layer_bytes(tmp_path / "model") < 0.6 * read_facts(plain).bytes_per_layer


def packed_experts(folder: Path) -> Path:
    """A gpt-oss checkpoint in one file, its experts in MXFP4."""
    save(VLLM_FAMILIES["gpt-oss"], folder, seed=3, dtype=torch.bfloat16, max_shard_size="1GB")
    pack_experts(folder)
    return folder


def test_experts_in_mxfp4_weigh_what_the_files_say(tmp_path: Path) -> None:
    checkpoint = packed_experts(tmp_path)
    assert read_facts(checkpoint).bytes_per_layer == layer_bytes(checkpoint)


@pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")
@pytest.mark.parametrize("kind", [*EQUAL_TO_VLLM, *NEAR_ROUNDED])
def test_quantised_stages_compute_what_the_rounded_weights_would(
    kind: str, plain: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    rounded = quantize(plain, tmp_path / kind, kind)
    oracle = AutoModelForCausalLM.from_pretrained(rounded, dtype=torch.float32)
    with torch.inference_mode():
        expected_TV = oracle(torch.tensor([PROMPT])).logits[0]
        plain_TV = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)(
            torch.tensor([PROMPT])
        ).logits[0]
    whole_TV = logits_of(tmp_path / kind, PROMPT, [Cut(layers=range(LAYERS))])
    cut_TV = logits_of(tmp_path / kind, PROMPT, CUTS)
    rounding = distance(plain_TV, expected_TV)  # what quantising this model changes
    # these round activations as well
    share = 1.5 if kind in {"w8a8", "fp8"} else 0.5
    assert distance(whole_TV, expected_TV) < share * rounding
    assert distance(cut_TV, whole_TV) < share * rounding
    halves = [Cut(layers=cut.layers, computed_in="float16") for cut in CUTS]
    half_TV = logits_of(tmp_path / kind, PROMPT, halves, wire_dtype=torch.bfloat16)
    assert distance(half_TV, expected_TV) < share * rounding


@pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")
@pytest.mark.parametrize("kind", REFUSED_ON_CPUS)
def test_weights_without_a_kernel_on_this_machine_are_refused_with_the_reason(
    kind: str, plain: Path, tmp_path: Path
) -> None:
    if torch.cpu._is_amx_tile_supported() and kind != "w8a16":
        pytest.skip("this machine has AMX, for which vLLM has the kernel")
    if kind == "mxfp4":
        checkpoint = packed_experts(tmp_path / "model")
    else:
        checkpoint = tmp_path / "model"
        quantize(plain, checkpoint, kind)
    with pytest.raises(
        CannotRun, match=r"cannot run layers .*: \w+: .*has a kernel for"
    ) as refused:
        logits_of(checkpoint, PROMPT, [Cut(layers=range(LAYERS))])
    assert len(str(refused.value)) < 600


@pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")
def test_quantised_stages_that_carry_residuals_answer_as_whole_vllm(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy, in bfloat16, one request at a time: kernels round by the rows of a step."""
    from carried_residuals import residuals_carried, with_wide_rows

    for kind in EQUAL_TO_VLLM:
        quantize(plain, tmp_path / kind, kind)
    told = {
        "checkpoints": [str(tmp_path / kind) for kind in EQUAL_TO_VLLM],
        "prompts": PROMPTS,
        "max_tokens": ANSWER,
    }
    answers = tmp_path / "answers.json"
    subprocess.run(
        [sys.executable, Path(__file__).with_name("whole_vllm.py"), answers],
        input=json.dumps(told).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    whole = json.loads(answers.read_text())
    monkeypatch.setattr(
        "stage_cluster.make_runner",
        lambda *told, **options: with_wide_rows(make_runner(*told, **options)),
    )
    layers = {"a": (0, 3), "b": (1, 5), "c": (4, LAYERS)}
    paths = [
        [("a", 0, 2), ("b", 2, 5), ("c", 5, LAYERS)],
        [("a", 0, 3), ("b", 3, 4), ("c", 4, LAYERS)],
        [("a", 0, 1), ("b", 1, 5), ("c", 5, LAYERS)],
    ]
    with residuals_carried():
        for kind in EQUAL_TO_VLLM:
            cluster = StageCluster(tmp_path / kind, layers, max_batch_tokens=64)
            for request, prompt in enumerate(PROMPTS):
                sampling = replace(GREEDY, max_tokens=ANSWER)
                cluster.prompt(request, prompt, paths[request], sampling=sampling)
                cluster.run_all()
            found = [cluster.answers[request, 1].token_ids for request in range(len(PROMPTS))]
            assert found == whole[str(tmp_path / kind)], kind
            cluster.release_all()


@pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")
def test_a_type_without_a_kernel_is_refused_with_those_that_have_one(
    plain: Path, tmp_path: Path
) -> None:
    quantize(plain, tmp_path / "awq", "awq")
    with pytest.raises(CannotRun, match=r"float32 is not supported.*awq.*float16.*bfloat16"):
        logits_of(tmp_path / "awq", PROMPT, [Cut(layers=range(LAYERS), computed_in="float32")])
