"""The real `vllm serve` on this CPU: how its start, its answers and its failure look from here."""

import asyncio
import os
from pathlib import Path

import httpx
import pytest
from free_port import free_port
from instance_rig import SERVED, run, supervised

from runtime.agent.vllm_environment import vllm_command
from runtime.instances.asking import AskedInstance
from runtime.instances.health import Condition, Patience
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.instances import VllmInstance

PYTHON = os.environ.get("HELIX_TEST_VLLM_PYTHON", "")
PATIENCE = Patience(start_s=900, stop_s=60, first_retry_s=600)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not PYTHON, reason="HELIX_TEST_VLLM_PYTHON names no Python with vLLM"),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m"
    sizes = TinySizes(
        hidden_size=64, intermediate_size=128, num_layers=2, num_heads=2, num_kv_heads=2
    )
    make_tiny_checkpoint(path, sizes=sizes, seed=1)
    return path


def spec(checkpoint: Path, *arguments: str) -> VllmInstance:
    return VllmInstance(
        backend="vllm",
        name="one",
        model=str(checkpoint),
        port=free_port(),
        gpus=(0,),
        cpu_threads=1,
        max_context_tokens=64,
        command=vllm_command(PYTHON),
        extra_arguments=("--enforce-eager", "--max-num-seqs", "4", *arguments),
    )


def test_it_starts_by_steps_answers_with_a_quiet_log_and_ends(
    checkpoint: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        wanted, steps = spec(checkpoint, "--kv-cache-memory-bytes", str(16 << 20)), set()
        async with supervised(tmp_path, wanted, patience=PATIENCE) as instance:
            async with asyncio.timeout(PATIENCE.start_s):
                while instance.state.condition is not Condition.READY:
                    steps.add(instance.state.message.partition(",")[0])
                    await asyncio.sleep(0.05)
            assert {"starting", "weights are read"} <= steps
            address = instance.asked.address
            async with httpx.AsyncClient(timeout=300, trust_env=False) as http:
                load = await AskedInstance(http, address).load()
                answer = await http.post(
                    f"{address.url}/v1/completions",
                    headers={"Authorization": f"Bearer {address.api_key}"},
                    json={"model": SERVED, "prompt": "ab", "max_tokens": 3, "ignore_eos": True},
                )
            assert answer.json()["usage"]["completion_tokens"] == 3
            assert (load.requests, load.complaint) == (0, "")
            assert load.kv_room_tokens
            log = (tmp_path / "one.log").read_text()
            assert "GET /health" not in log
            await instance.stop()
            assert instance.state.condition is Condition.IDLE

    run(test())


def test_what_its_worker_cannot_do_is_told_in_the_words_of_its_first_error(
    checkpoint: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        wanted = spec(checkpoint, "--kv-cache-memory-bytes", "64")
        async with supervised(tmp_path, wanted, patience=PATIENCE) as instance:
            async with asyncio.timeout(PATIENCE.start_s):
                while instance.state.condition is not Condition.WAITING:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            why = instance.state.message.partition("; its log ends: ")[0]
            assert why.startswith("exited with status 1: ValueError: ")
            assert "cache blocks" in why

    run(test())
