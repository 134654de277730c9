"""SmolLM2-135M in float32 through stages that vLLM computes: 100 answers, under kills, are those
of `transformers`, token for token.

Needs the Python of an environment with vLLM in HELIX_TEST_VLLM_PYTHON.
"""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from runtime.protocol.engines import Engine, EngineSettings
from tests.e2e.chaos_cluster import ChaosCluster, Served, running_cluster
from tests.e2e.chaos_load import Load, Stream
from tests.e2e.smollm import smollm
from tests.waiting import until

VLLM_PYTHON = os.environ.get("HELIX_TEST_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.skipif(not VLLM_PYTHON, reason="HELIX_TEST_VLLM_PYTHON names no Python with vLLM"),
]

PROMPTS, OUTPUT_TOKENS, CLIENTS = 100, 16, 8
NUM_LAYERS = 30
WHOLE = {
    "first-1": (0, 10),
    "first-2": (0, 10),
    "hub": (10, 20),
    "last-1": (20, 30),
    "last-2": (20, 30),
}
PARTIAL = {
    "first-1": (0, 14),
    "first-2": (0, 10),
    "hub": (10, 22),
    "last-1": (18, 30),
    "last-2": (22, 30),
}
KILLED = ("first-1", "hub", "last-2")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smollm(tmp_path_factory.mktemp("smollm") / "float32")


@pytest.fixture(scope="module")
def load(checkpoint: Path) -> Load:
    """Prompts of 10 to 200 tokens."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    text = Path(__file__).parents[2].joinpath("README.md").read_text(encoding="utf-8")
    ids = tokenizer.encode(text * 3).ids
    starts = [index * 37 for index in range(PROMPTS)]
    prompts = [ids[start : start + 10 + (start * 7) % 190] for start in starts]
    return Load(url="", prompts=prompts, output_tokens=OUTPUT_TOKENS, greedy=True)


@pytest.fixture(scope="module")
def oracle(checkpoint: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


@torch.inference_mode()
def is_greedy(oracle: Any, prompt: list[int], answer: tuple[int, ...]) -> bool:
    """Whether `transformers` would choose each token of the answer, behind those before it."""
    logits_TV = oracle(torch.tensor([[*prompt, *answer]])).logits[0]
    best_T = logits_TV[len(prompt) - 1 : -1].argmax(-1)
    return len(answer) == OUTPUT_TOKENS and tuple(best_T.tolist()) == answer


def of_vllm(*nodes: str) -> dict[str, EngineSettings]:
    settings = EngineSettings(engine=Engine.VLLM, python=VLLM_PYTHON)
    return {node: settings for node in nodes}


CHAINS: dict[str, tuple[Mapping[str, tuple[int, int]], Mapping[str, EngineSettings]]] = {
    "all vLLM": (WHOLE, of_vllm(*WHOLE)),
    "all vLLM, partial routes": (PARTIAL, of_vllm(*PARTIAL)),
    "vLLM, own, vLLM": (PARTIAL, of_vllm("first-1", "first-2", "last-1", "last-2")),
}


@pytest.fixture
def cluster(chain: str, checkpoint: Path, tmp_path: Path) -> Iterator[ChaosCluster]:
    layers, engines = CHAINS[chain]
    served = Served(
        checkpoint=checkpoint,
        num_layers=NUM_LAYERS,
        layers=layers,
        engines=engines,
        budget_bytes=2**30,
    )
    with running_cluster(tmp_path, served) as running:
        yield running


@pytest.mark.parametrize("chain", CHAINS)
def test_answers_under_kills_are_those_of_transformers(
    cluster: ChaosCluster, load: Load, oracle: Any, chain: str, tmp_path: Path
) -> None:
    load.url = cluster.url
    streams = asyncio.run(_ask_while_stages_die(cluster, load))
    assert not [stream.error for stream in streams if stream.error]
    wrong = [
        stream
        for stream in streams
        if not is_greedy(oracle, load.prompts[stream.prompt], stream.token_ids)
    ]
    assert not wrong, f"{len(wrong)} of {len(streams)}: {wrong[0]}"
    assert len(streams) == PROMPTS
    starts = cluster.starts()
    assert all(starts[node] == 1 + (node in KILLED) for node in starts), starts
    asked_of_vllm = {node for node, settings in CHAINS[chain][1].items()}
    told = {node: _engine(tmp_path, node) for node in starts}
    assert {node for node, engine in told.items() if engine.startswith("vLLM")} == asked_of_vllm


async def _ask_while_stages_die(cluster: ChaosCluster, load: Load) -> list[Stream]:
    asking = asyncio.create_task(load.ask_each(clients=CLIENTS))
    for node in KILLED:
        await asyncio.sleep(3)  # streams run through every node
        assert not asking.done()
        cluster.kill(node)
        serving = "all stages serve again"
        await asyncio.to_thread(until, lambda: not cluster.health()["silent_nodes"], serving)
    return await asking


def _engine(folder: Path, node: str) -> str:
    """What the stage says it runs on."""
    lines = (folder / f"{node}.1.events").read_text().splitlines()
    ready = next(line for line in lines if '"ready"' in line)
    return str(json.loads(ready)["stats"]["engine"])
