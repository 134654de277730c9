"""What of a run on a GPU is as it should be. Pure: from what the parts found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_COPIES = 3
_FAST = ("FLASH_ATTN", "FLASHMLA", "FLASH_ATTN_MLA")
_FAST_FROM = (8, 0)  # compute capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`skipped`: the check could not be made, for a reason that is right."""

    check: str
    passed: bool
    why: str = ""
    skipped: bool = False


def verdicts(
    found: Mapping[str, Any], *, gpus: int, least_share: float, is_dry: bool = False
) -> list[Verdict]:
    """`found` has what each part found, or {"error": why}. In a dry run nothing needs a GPU or
    vLLM; otherwise a part that did not run has failed."""
    of_stages = {
        name: part
        for name, part in found.items()
        if name.startswith(("helix", "vllm")) and "error" not in part
    }
    answers = [
        Verdict(check=name, passed="error" not in part, why=part.get("error", ""))
        for name, part in found.items()
    ]
    answers += [
        _equal(found, "helix float32", "transformers"),
        _equal(found, "vllm float32", "transformers"),
        _equal(found, "vllm bfloat16", "whole vllm bfloat16"),
        _equal(found, "vllm awq", "whole vllm awq"),
        _equal(found, "vllm float32 with graphs", "transformers"),
    ]
    if gpus > 1:
        answers.append(_equal(found, "vllm float32 on two GPUs", "transformers"))
    else:
        answers.append(_skipped("two GPUs", "there is one"))
    for name, part in of_stages.items():
        answers += _fast_paths(name, part)
    for graphs in ("", " with graphs"):
        answers += _speed(found, f"vllm speed{graphs}", least_share)
    return [_as_dry(each) for each in answers] if is_dry else answers


def _equal(found: Mapping[str, Any], ours: str, theirs: str) -> Verdict:
    check = f"{ours}: ids as {theirs}"
    ids = [found.get(name, {}).get("ids") for name in (ours, theirs)]
    if None in ids:
        return Verdict(check=check, passed=False, why="one of them gave none")
    differ = [number for number, pair in enumerate(zip(*ids, strict=True)) if pair[0] != pair[1]]
    return Verdict(check=check, passed=not differ, why=f"prompts {differ} differ" if differ else "")


def _fast_paths(name: str, part: Mapping[str, Any]) -> list[Verdict]:
    """On a GPU: kernels that are fast there, pinned memory, few copies."""
    engine, copies = part["engine"], part.get("copies")
    on_gpu = " on cuda" in engine or "GPUs" in engine or part["capability"] is not None
    found = [
        Verdict(check=f"{name}: runs on the GPU", passed=on_gpu, why=engine),
        Verdict(check=f"{name}: no slow kernel", passed="slow" not in engine, why=engine),
        Verdict(check=f"{name}: pinned memory", passed=part["is_pinned"], why="raise ulimit -l"),
    ]
    peak, budget = part.get("peak_bytes"), part.get("budget_bytes")
    is_within = peak is not None and budget is not None and peak <= budget
    why = f"{peak} bytes of the GPU at most, budget {budget}"
    found.append(Verdict(check=f"{name}: memory within the budget", passed=is_within, why=why))
    if name.startswith("helix"):
        return found
    few = copies is not None and copies <= MOST_COPIES
    why = f"{copies} copies between host and device in a decode step, {MOST_COPIES} at most"
    found.append(Verdict(check=f"{name}: few copies", passed=few, why=why))
    capability = tuple(part["capability"] or (0, 0))
    if capability >= _FAST_FROM and "float32" not in name:
        is_fast = any(backend in engine for backend in _FAST)
        found.append(Verdict(check=f"{name}: FlashAttention", passed=is_fast, why=engine))
    if "graphs" in name:
        is_recorded = "decode graphs" in engine
        found.append(Verdict(check=f"{name}: recorded", passed=is_recorded, why=engine))
    return found


def _speed(found: Mapping[str, Any], ours: str, least_share: float) -> list[Verdict]:
    speeds, whole = (
        found.get(name, {}).get("tokens_per_s", {}) for name in (ours, "whole vllm speed")
    )
    if not speeds or not whole:
        return [Verdict(check=f"{ours}: as fast as vLLM", passed=False, why="not measured")]
    return [
        Verdict(
            check=f"{ours}: {count} at once",
            passed=speeds[count] >= least_share * whole[count],
            why=f"{speeds[count]:.0f} tokens/s, whole vLLM {whole[count]:.0f}; at least "
            f"{least_share:.0%} of it",
        )
        for count in whole
    ]


def _as_dry(verdict: Verdict) -> Verdict:
    """Without a GPU or vLLM only what our own engine answers is checked."""
    own = verdict.check.startswith(("helix", "transformers"))
    if own and not verdict.check.endswith(("GPU", "memory", "budget")):
        return verdict
    return _skipped(verdict.check, "a dry run has neither a GPU nor vLLM")


def _skipped(check: str, why: str) -> Verdict:
    return Verdict(check=check, passed=True, why=why, skipped=True)
