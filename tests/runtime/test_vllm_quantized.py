"""Quantised checkpoints: their bytes as the planner counts them, and their stages on vLLM."""

from pathlib import Path

import numpy as np
import pytest
import torch
from engine_under_test import IS_VLLM, make_runner
from quantized_checkpoints import KINDS, quantize
from safetensors.torch import load_file
from torch import Tensor

from runtime.checkpoints.model_facts import read_facts
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.step_runner import StepRunner
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.routes import Hop, Route, Sampling

LAYERS, CUTS = 6, (range(2), range(2, 5), range(5, 6))
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
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    make_tiny_checkpoint(folder, sizes=SIZES, seed=5)
    return folder


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("w4a16", "compressed-tensors-4bit"),
        ("w8a8", "compressed-tensors-8bit"),
        ("awq", "awq-4bit"),
        ("gptq", "gptq-4bit"),
    ],
)
def test_layers_weigh_what_the_files_say(kind: str, told: str, plain: Path, tmp_path: Path) -> None:
    quantize(plain, tmp_path / kind, kind)
    facts, before = read_facts(tmp_path / kind), read_facts(plain)
    stored = load_file(tmp_path / kind / "model.safetensors")
    layer = sum(tensor.nbytes for name, tensor in stored.items() if ".layers.3." in name)
    assert facts.bytes_per_layer == layer < 0.6 * before.bytes_per_layer
    assert facts.embedding_bytes == before.embedding_bytes
    assert facts.activation_bytes_per_token == before.activation_bytes_per_token
    assert facts.dtype == told


def rows_through(runner: StepRunner, layers: range, rows: bytes) -> Tensor:
    """The whole prompt through `layers`, from token ids or from the rows before them."""
    route = Route(
        hops=(Hop(node="n", first=layers.start, end=layers.stop),),
        prompt_tokens=len(PROMPT),
        sampling=GREEDY,
    )
    key = RequestKey(request=0, epoch=0)
    sequence = Sequence(key=key, generation=1, route=route, hop=0, arrival=0)
    chunk = Chunk(
        position=0, n_tokens=len(PROMPT), payload=memoryview(rows), is_sampled=False, arrival=0
    )
    runner.cache.books.reserve(sequence.table, tokens=chunk.end)
    return runner.forward([Work(sequence=sequence, chunk=chunk)])


def logits_of(checkpoint: Path, cuts: tuple[range, ...]) -> Tensor:
    """Of every position of the prompt, by one stage for each of `cuts`."""
    rows = np.array(PROMPT, dtype="<i4").tobytes()
    for layers in cuts:
        runner = make_runner(
            checkpoint, layers, pages=100, max_context_tokens=128, max_batch_tokens=64
        )
        hidden_TD = rows_through(runner, layers, rows)
        rows = hidden_TD.contiguous().view(torch.uint8).numpy().tobytes()
    return runner.logits(hidden_TD)


def distance(ours_TV: Tensor, theirs_TV: Tensor) -> float:
    """Relative to the spread of the logits."""
    return float((ours_TV - theirs_TV).norm() / theirs_TV.norm())


@pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")
@pytest.mark.parametrize("kind", KINDS)
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
    whole_TV = logits_of(tmp_path / kind, (range(LAYERS),))
    cut_TV = logits_of(tmp_path / kind, CUTS)
    rounding = distance(plain_TV, expected_TV)  # what quantising this model changes
    # w8a8 rounds activations as well
    share = 1.5 if kind == "w8a8" else 0.5
    assert distance(whole_TV, expected_TV) < share * rounding
    assert distance(cut_TV, whole_TV) < share * rounding
