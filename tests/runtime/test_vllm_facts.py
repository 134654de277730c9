"""What vLLM can run on a node: how it is asked, kept and announced."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_rig import Node, run
from fake_web import TOKEN, FakeWeb

from runtime.agent.vllm_facts import VllmFacts
from runtime.checkpoints.engine_fit import KINDS
from runtime.engine.vllm_facts import offer_of
from runtime.protocol.engines import Engine, EngineOffer

OFFER = EngineOffer(engine=Engine.VLLM, version="0.32.0", platform="cpu", quantizations=("fp8",))
LEAST = dict.fromkeys(KINDS, 75) | {"mxfp4": 80}


def environment(folder: Path, script: str) -> Path:
    """A virtual environment whose Python is a shell script."""
    (folder / "lib" / "python3" / "site-packages").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho asked >> {folder}/asked\n{script}\n")
    python.chmod(0o755)
    return python


def facts_of(python: Path, folder: Path) -> VllmFacts:
    return VllmFacts(python=str(python), gpus=("L4",), file=folder / "facts.json")


def test_the_answer_of_an_environment_is_kept_until_it_changes(tmp_path: Path) -> None:
    python = environment(tmp_path / "env", f"echo '{OFFER.model_dump_json()}'")
    facts = facts_of(python, tmp_path)
    assert facts.kept() is None
    assert asyncio.run(facts.ask()) == OFFER
    assert facts.kept() == OFFER
    os.utime(tmp_path / "env" / "lib" / "python3" / "site-packages", ns=(1, 1))
    assert facts.kept() is None


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb() as fake:
        yield fake


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'No module named pydantic' >&2; exit 1", "status 1: No module named pydantic"),
        ("echo '{}'", "status 0"),
    ],
)
def test_an_environment_without_an_answer_is_asked_again_at_the_next_start(
    tmp_path: Path, script: str, told: str
) -> None:
    facts = facts_of(environment(tmp_path / "env", script), tmp_path)
    assert told in asyncio.run(facts.ask()).why_not
    assert facts.kept() is None


def test_a_python_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "cannot start" in asyncio.run(facts_of(tmp_path / "no", tmp_path).ask()).why_not


def test_an_agent_announces_what_its_engines_can_run_once_it_knows(
    tmp_path: Path, web: FakeWeb
) -> None:
    python = environment(tmp_path / "env", f"echo '{OFFER.model_dump_json()}'")
    node = Node(tmp_path, web)

    async def check() -> None:
        async with node.running(token=TOKEN, vllm_facts=facts_of(python, tmp_path)):
            await node.until(lambda: web.announcements, what="an announcement")

    run(check())
    told = {offer.engine: offer for offer in web.announcements[-1].hardware.engines}
    assert told[Engine.HELIX].quantizations == ("gguf",)
    assert told[Engine.VLLM] == OFFER


@pytest.mark.parametrize(
    ("device", "runs", "not_"),
    [
        ({"platform": "cpu"}, "awq-4bit", "fp8-blocks"),
        ({"platform": "cpu", "has_amx": True}, "fp8-blocks", "compressed-tensors-w8a16-int8"),
        ({"platform": "cuda", "capability": 75}, "compressed-tensors-w8a8-fp8", "mxfp4"),
    ],
)
def test_kinds_of_weights_follow_from_the_device(
    device: dict[str, Any], runs: str, not_: str
) -> None:
    whole = SimpleNamespace(**{"capability": None, "dtypes": (), "has_amx": False, **device})
    offer = offer_of(whole, LEAST)  # type: ignore[arg-type]
    assert runs in (offer.quantizations or ())
    assert not_ not in (offer.quantizations or ())
    assert ("awq-4bit" in (offer.expert_quantizations or ())) == (
        device["platform"] == "cuda" or whole.has_amx
    )
