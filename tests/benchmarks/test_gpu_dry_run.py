"""The checks for GPUs: gone through on the CPU, and what makes them fail."""

import json
import tomllib
from typing import Any

import pytest

from benchmarks.gpu.run_all import HERE, main
from benchmarks.gpu.verdicts import verdicts

IDS = [[1, 2], [3, 4]]


def a_stage(engine: str = "vLLM on cuda (FLASH_ATTN)", **changes: Any) -> dict[str, Any]:
    return {
        "engine": engine,
        "capability": [9, 0],
        "is_pinned": True,
        "copies": 3,
        "peak_bytes": 7 << 30,
        "budget_bytes": 8 << 30,
        "ids": IDS,
        "tokens_per_s": {"1": 95.0, "32": 950.0},
    } | changes


def a_good_run() -> dict[str, dict[str, Any]]:
    whole = {"ids": IDS, "tokens_per_s": {"1": 100.0, "32": 1000.0}}
    found: dict[str, dict[str, Any]] = {
        f"whole vllm {name}": dict(whole) for name in ("bfloat16", "awq", "speed")
    }
    found |= {f"vllm {name}": a_stage() for name in ("bfloat16", "awq", "speed")}
    found["vllm float32"] = a_stage("vLLM on cuda (TRITON_ATTN)")
    found["vllm float32 with graphs"] = a_stage("vLLM on cuda (TRITON_ATTN, decode graphs)")
    found["vllm speed with graphs"] = a_stage("vLLM on cuda (FLASH_ATTN, decode graphs)")
    found |= {"transformers": {"ids": IDS}, "helix float32": a_stage("helix on cuda")}
    return found


def failures(found: dict[str, dict[str, Any]], *, gpus: int = 1) -> list[str]:
    return [each.check for each in verdicts(found, gpus=gpus, least_share=0.9) if not each.passed]


def test_a_run_as_it_should_be_passes_and_says_what_was_not_checked() -> None:
    assert not failures(a_good_run())
    skipped = [each for each in verdicts(a_good_run(), gpus=1, least_share=0.9) if each.skipped]
    assert [each.check for each in skipped] == ["two GPUs"]


@pytest.mark.parametrize(
    ("part", "changes", "failed"),
    [
        ("vllm bfloat16", {"ids": [[1, 2], [3, 5]]}, "vllm bfloat16: ids as whole vllm bfloat16"),
        ("vllm awq", {"copies": 4}, "vllm awq: few copies"),
        ("vllm awq", {"copies": None}, "vllm awq: few copies"),
        ("vllm speed", {"engine": "vLLM on cuda (TRITON_ATTN)"}, "vllm speed: FlashAttention"),
        ("vllm awq", {"engine": "FLASH_ATTN, X, slow"}, "vllm awq: no slow kernel"),
        ("vllm awq", {"peak_bytes": 9 << 30}, "vllm awq: memory within the budget"),
        ("vllm awq", {"is_pinned": False}, "vllm awq: pinned memory"),
        ("vllm speed with graphs", {"engine": "FLASH_ATTN"}, "vllm speed with graphs: recorded"),
        ("vllm speed", {"tokens_per_s": {"1": 95.0, "32": 800.0}}, "vllm speed: 32 at once"),
        (
            "helix float32",
            {"engine": "helix", "capability": None},
            "helix float32: runs on the GPU",
        ),
    ],
)
def test_what_is_slow_or_wrong_fails_by_name(
    part: str, changes: dict[str, Any], failed: str
) -> None:
    found = a_good_run()
    found[part] |= changes
    assert failures(found) == [failed]


def test_a_part_that_did_not_run_fails_with_all_that_was_to_be_checked_by_it() -> None:
    found = a_good_run()
    found["vllm speed"] = {"error": "vLLM is not installed"}
    assert {"vllm speed", "vllm speed: as fast as vLLM"} <= set(failures(found))
    assert failures(a_good_run(), gpus=2) == ["vllm float32 on two GPUs: ids as transformers"]


@pytest.mark.long
def test_all_of_it_is_gone_through_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run"]) == 0
    report = json.loads(capsys.readouterr().out)
    made = [each["check"] for each in report["checks"] if not each["skipped"]]
    assert "helix float32: ids as transformers" in made
    assert report["found"]["helix float32"]["engine"].startswith("helix on cpu")


def test_a_dry_run_has_the_same_parameters_as_a_real_one() -> None:
    dry, real = (
        tomllib.loads((HERE / name).read_text(encoding="utf-8"))
        for name in ("dry_run.toml", "parameters.toml")
    )
    assert {key: set(value) for key, value in dry.items() if isinstance(value, dict)} == {
        key: set(value) for key, value in real.items() if isinstance(value, dict)
    }
    assert set(dry) == set(real)
