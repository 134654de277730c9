"""Rotary position frequencies, by what config.json says; `transformers` stretches them.

Legend: H head size, F = H/2 frequencies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from runtime.models.checkpoint import CheckpointError

_DEFAULT_THETA = 10000.0
_STRETCHED = ("linear", "llama3", "yarn")
# the last is how GGUF files have llama3
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "divisors")
_NUMBERS = (
    "factor", "low_freq_factor", "high_freq_factor", "attention_factor", "beta_fast", "beta_slow",
    "mscale", "mscale_all_dim",
)  # fmt: skip
_CONTEXT = "original_max_position_embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Radians per position, stretched, and what cos and sin are multiplied by."""

    frequencies: tuple[float, ...]
    amplitude: float = 1.0


def parse_rope(raw: Mapping[str, Any], head_size: int) -> Rope:
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
        theta = float(rope.get("rope_theta") or raw.get("rope_theta") or _DEFAULT_THETA)
        if kind in _STRETCHED:
            return _stretched(kind, theta, rope, raw, head_size)
        powers_F = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
        frequencies_F = 1.0 / theta**powers_F
        if kind == "divisors":
            divisors = tuple(map(float, rope["divisors"]))
            if len(divisors) != len(frequencies_F):
                raise ValueError(f"{len(divisors)} divisors for {len(frequencies_F)} frequencies")
            frequencies_F = frequencies_F / torch.tensor(divisors)
        return Rope(frequencies=tuple(frequencies_F.tolist()))
    except KeyError as error:
        raise CheckpointError(
            f"{kind} rope scaling lacks {error}; download the checkpoint again"
        ) from None
    except ImportError:
        raise CheckpointError(
            f"{kind} rope scaling needs the transformers package; run: pip install "
            "'helixweb[agent]'"
        ) from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise CheckpointError(f"rope parameters: {error}; download the checkpoint again") from None


def _stretched(
    kind: str, theta: float, rope: Mapping[str, Any], raw: Mapping[str, Any], head_size: int
) -> Rope:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # half a second

    given = {name: float(rope[name]) for name in _NUMBERS if rope.get(name) is not None}
    longest = int(raw["max_position_embeddings"])
    context = int(raw.get(_CONTEXT) or rope.get(_CONTEXT) or longest)
    if kind == "yarn":
        given.setdefault("factor", longest / context)
    parameters = given | {
        "rope_theta": theta,
        _CONTEXT: context,
        "truncate": bool(rope.get("truncate", True)),
    }
    config: Any = SimpleNamespace(
        rope_parameters=parameters,
        standardize_rope_params=lambda: None,  # they are
        head_dim=head_size,
        hidden_size=head_size,
        num_attention_heads=1,
    )
    frequencies_F, amplitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return Rope(frequencies=tuple(frequencies_F.tolist()), amplitude=float(amplitude))
