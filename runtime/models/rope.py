"""Rotary position frequencies: the plain ones and the stretches of config.json's rope scaling.

Legend: H head size, F = H/2 frequencies.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.models.checkpoint import CheckpointError

_DEFAULT_THETA = 10000.0
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "divisors")
_REQUIRED = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Base of the frequencies, and how they are stretched, with the `numbers` of that kind by name.

    linear: all are divided by `factor`. divisors: each by its own, as GGUF files have the stretch
    of Llama 3.1. llama3: low frequencies are divided by `factor`. yarn: frequencies below
    `beta_slow` turns per original context are divided by `factor`, those above `beta_fast` kept;
    cos and sin are multiplied by `attention_factor`.
    """

    theta: float
    kind: str
    numbers: Mapping[str, float]
    divisors: tuple[float, ...] = ()

    @property
    def amplitude(self) -> float:
        """What cos and sin are multiplied by."""
        return self.numbers.get("attention_factor", 1.0)


def parse_rope(raw: Mapping[str, Any]) -> Rope:
    """From config.json, by new key (`rope_parameters`) or old (`rope_theta`, `rope_scaling`).

    "dynamic" scaling changes nothing up to `max_position_embeddings`, beyond which no stage runs,
    so it is the plain rope here. Raises CheckpointError, which does not name the file.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in _KINDS:
        raise CheckpointError(
            f"rope_type is {kind!r}, which is not supported (supported: {', '.join(_KINDS)}); "
            "choose a checkpoint with one of these"
        )
    try:
        return Rope(
            theta=float(rope.get("rope_theta") or raw.get("rope_theta") or _DEFAULT_THETA),
            kind=kind,
            numbers=_numbers(kind, rope, raw),
            divisors=tuple(map(float, rope["divisors"])) if kind == "divisors" else (),
        )
    except KeyError as error:
        raise CheckpointError(
            f"{kind} rope scaling lacks {error}; download the checkpoint again"
        ) from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"rope parameters: {error}; download the checkpoint again") from None


def _numbers(kind: str, rope: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: float(rope[name]) for name in _REQUIRED.get(kind, ())}
    if kind in ("llama3", "yarn"):
        numbers["context"] = _original_context(rope, raw)
    if kind == "yarn":
        given = rope.get("factor")
        factor = float(given or int(raw["max_position_embeddings"]) / numbers["context"])
        numbers |= {
            "factor": factor,
            "attention_factor": _yarn_attention_factor(rope, factor),
            "beta_fast": float(rope.get("beta_fast") or 32),
            "beta_slow": float(rope.get("beta_slow") or 1),
            "truncate": bool(rope.get("truncate", True)),
        }
    return numbers


def _original_context(rope: Mapping[str, Any], raw: Mapping[str, Any]) -> int:
    """Tokens of the context the model was trained with before it was stretched."""
    for value in (
        raw.get("original_max_position_embeddings"),
        rope.get("original_max_position_embeddings"),
    ):
        if value is not None:
            return int(value)
    return int(raw["max_position_embeddings"])


def _yarn_attention_factor(rope: Mapping[str, Any], factor: float) -> float:
    given = rope.get("attention_factor")
    if given is not None:
        return float(given)
    mscale, mscale_all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    if mscale and mscale_all_dim:
        return _mscale(factor, float(mscale)) / _mscale(factor, float(mscale_all_dim))
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def inverse_frequencies(rope: Rope, head_size: int, *, device: torch.device) -> Tensor:
    """Rotary frequencies [F] in radians per position, float32, scaling applied."""
    powers_F = rope.theta ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    frequencies_F = 1.0 / powers_F
    if rope.kind == "linear":
        frequencies_F = frequencies_F / rope.numbers["factor"]
    elif rope.kind == "divisors":
        if len(rope.divisors) != len(frequencies_F):
            raise CheckpointError(
                f"{len(rope.divisors)} divisors of rotary frequencies for {len(frequencies_F)} "
                "frequencies; download the checkpoint again"
            )
        frequencies_F = frequencies_F / torch.tensor(rope.divisors)
    elif rope.kind == "llama3":
        frequencies_F = _llama3(frequencies_F, rope.numbers)
    elif rope.kind == "yarn":
        kept_F = _yarn_kept_share(rope.theta, rope.numbers, head_size)
        stretched_F = 1.0 / (rope.numbers["factor"] * powers_F)
        frequencies_F = stretched_F * (1 - kept_F) + frequencies_F * kept_F
    return frequencies_F.to(device)


def _llama3(frequencies_F: Tensor, numbers: Mapping[str, float]) -> Tensor:
    context, low = numbers["context"], numbers["low_freq_factor"]
    wavelengths_F = 2 * math.pi / frequencies_F
    stretched_F = frequencies_F / numbers["factor"]
    smooth_F = (context / wavelengths_F - low) / (numbers["high_freq_factor"] - low)
    blended_F = (1 - smooth_F) * stretched_F + smooth_F * frequencies_F
    long_F = wavelengths_F > context / low
    short_F = wavelengths_F < context / numbers["high_freq_factor"]
    return torch.where(long_F, stretched_F, torch.where(short_F, frequencies_F, blended_F))


def _yarn_kept_share(theta: float, numbers: Mapping[str, float], head_size: int) -> Tensor:
    """1 where a frequency stays as it is, 0 where it is divided, a ramp between."""

    def index_of(turns: float) -> float:
        context = numbers["context"]
        return head_size * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = index_of(numbers["beta_fast"]), index_of(numbers["beta_slow"])
    if numbers["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_size - 1)
    width = high - low or 0.001
    ramp_F = (torch.arange(head_size // 2, dtype=torch.float32) - low) / width
    return 1 - ramp_F.clamp(0, 1)
