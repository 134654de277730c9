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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """All frequencies divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """The long-context stretch of Llama 3.1: low frequencies divided by `factor`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """YaRN: frequencies below `beta_slow` turns per original context are divided by `factor`,
    those above `beta_fast` kept; cos and sin are multiplied by `attention_factor`."""

    factor: float
    attention_factor: float
    beta_fast: float
    beta_slow: float
    truncate: bool
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisorScaling:
    """Each frequency divided by its own number: how GGUF files have the stretch of Llama 3.1."""

    divisors: tuple[float, ...]


Scaling = LinearScaling | Llama3Scaling | YarnScaling | DivisorScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Base of the frequencies and their stretch, if any."""

    theta: float
    scaling: Scaling | None

    @property
    def amplitude(self) -> float:
        """What cos and sin are multiplied by."""
        return self.scaling.attention_factor if isinstance(self.scaling, YarnScaling) else 1.0


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
            scaling=_parse_scaling(kind, rope, raw),
        )
    except KeyError as error:
        raise CheckpointError(
            f"{kind} rope scaling lacks {error}; download the checkpoint again"
        ) from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"rope parameters: {error}; download the checkpoint again") from None


def _parse_scaling(kind: str, rope: Mapping[str, Any], raw: Mapping[str, Any]) -> Scaling | None:
    if kind == "divisors":
        return DivisorScaling(divisors=tuple(float(each) for each in rope["divisors"]))
    if kind == "linear":
        return LinearScaling(factor=float(rope["factor"]))
    if kind == "llama3":
        return Llama3Scaling(
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_max_position_embeddings=_original_context(rope, raw),
        )
    if kind == "yarn":
        original = _original_context(rope, raw)
        factor = float(rope.get("factor") or int(raw["max_position_embeddings"]) / original)
        return YarnScaling(
            factor=factor,
            attention_factor=_yarn_attention_factor(rope, factor),
            beta_fast=float(rope.get("beta_fast") or 32),
            beta_slow=float(rope.get("beta_slow") or 1),
            truncate=bool(rope.get("truncate", True)),
            original_max_position_embeddings=original,
        )
    return None


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
    match rope.scaling:
        case LinearScaling(factor=factor):
            frequencies_F = frequencies_F / factor
        case DivisorScaling(divisors=divisors):
            if len(divisors) != len(frequencies_F):
                raise CheckpointError(
                    f"{len(divisors)} divisors of rotary frequencies for {len(frequencies_F)} "
                    "frequencies; download the checkpoint again"
                )
            frequencies_F = frequencies_F / torch.tensor(divisors)
        case Llama3Scaling() as scaling:
            frequencies_F = _llama3(frequencies_F, scaling)
        case YarnScaling() as scaling:
            kept_F = _yarn_kept_share(rope.theta, scaling, head_size)
            stretched_F = 1.0 / (scaling.factor * powers_F)
            frequencies_F = stretched_F * (1 - kept_F) + frequencies_F * kept_F
    return frequencies_F.to(device)


def _llama3(frequencies_F: Tensor, scaling: Llama3Scaling) -> Tensor:
    context = scaling.original_max_position_embeddings
    wavelengths_F = 2 * math.pi / frequencies_F
    stretched_F = frequencies_F / scaling.factor
    smooth_F = (context / wavelengths_F - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended_F = (1 - smooth_F) * stretched_F + smooth_F * frequencies_F
    long_F = wavelengths_F > context / scaling.low_freq_factor
    short_F = wavelengths_F < context / scaling.high_freq_factor
    return torch.where(long_F, stretched_F, torch.where(short_F, frequencies_F, blended_F))


def _yarn_kept_share(theta: float, scaling: YarnScaling, head_size: int) -> Tensor:
    """1 where a frequency stays as it is, 0 where it is divided, a ramp between."""

    def index_of(turns: float) -> float:
        context = scaling.original_max_position_embeddings
        return head_size * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = index_of(scaling.beta_fast), index_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_size - 1)
    width = high - low or 0.001
    ramp_F = (torch.arange(head_size // 2, dtype=torch.float32) - low) / width
    return 1 - ramp_F.clamp(0, 1)
